// Package table writes figures as tables in Markdown.
package table

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
)

// Table is a table in Markdown: rows of cells. The first cell of a row is its name.
type Table [][]string

// New returns a table with two columns: the names of the rows, and the values for n objects.
func New(name string, n int) Table {
	return Table{{name, fmt.Sprint(n)}, {"---", "---:"}}
}

// Row adds a row with a name and one cell.
func (t *Table) Row(name, format string, args ...any) {
	*t = append(*t, []string{name, fmt.Sprintf(format, args...)})
}

// Seconds adds a row with a duration, rounded to a tenth of a second.
func (t *Table) Seconds(name string, d time.Duration) { t.Row(name, "%s", d.Round(time.Second/10)) }

// Hundredths adds a row with a duration, rounded to a hundredth of a second.
func (t *Table) Hundredths(name string, d time.Duration) {
	t.Row(name, "%s", d.Round(time.Second/100))
}

// Each adds a row with d/n, the mean time for one of n operations.
func (t *Table) Each(name string, d time.Duration, n int) {
	t.Row(name, "%s", (d / time.Duration(max(1, n))).Round(10*time.Microsecond))
}

// Resident adds a row with the resident memory of a process.
func (t *Table) Resident(name string, p metrics.Process) {
	t.Row(name+"resident memory", "%.0f MiB", p.Resident/(1<<20))
}

// Memory adds two rows: the resident memory of a process, and its Go heap in use.
func (t *Table) Memory(name string, p metrics.Process) {
	t.Resident(name, p)
	t.Row(name+"Go heap in use", "%.0f MiB", p.Heap/(1<<20))
}

// CPU adds a row with the CPU time of a process in a window, as a part of one core.
func (t *Table) CPU(name string, p metrics.Process, window time.Duration) {
	t.Row(name+"CPU", "%.1f %% of a core", 100*p.CPU.Seconds()/window.Seconds())
}

// Join adds the columns of another table. The rows of both tables have the same names.
func (t *Table) Join(other Table) {
	for i, row := range other {
		if i == len(*t) {
			*t = append(*t, row[:1:1])
		}
		(*t)[i] = append((*t)[i], row[1:]...)
	}
}

// Print writes the table.
func (t *Table) Print(out io.Writer) error {
	var text strings.Builder
	for _, row := range *t {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
