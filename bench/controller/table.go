package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
)

// table is a table in Markdown: rows of cells. The first cell of a row is its name.
type table [][]string

// newTable returns a table with two columns: the names of the rows, and the values for n objects.
func newTable(name string, n int) table {
	return table{{name, fmt.Sprint(n)}, {"---", "---:"}}
}

// row adds a row with a name and one cell.
func (t *table) row(name, format string, args ...any) {
	*t = append(*t, []string{name, fmt.Sprintf(format, args...)})
}

// seconds adds a row with a duration, rounded to a tenth of a second.
func (t *table) seconds(name string, d time.Duration) { t.row(name, "%s", d.Round(time.Second/10)) }

// hundredths adds a row with a duration, rounded to a hundredth of a second.
func (t *table) hundredths(name string, d time.Duration) {
	t.row(name, "%s", d.Round(time.Second/100))
}

// each adds a row with d/n, the mean time for one of n operations.
func (t *table) each(name string, d time.Duration, n int) {
	t.row(name, "%s", (d / time.Duration(max(1, n))).Round(10*time.Microsecond))
}

// resident adds a row with the resident memory of a process.
func (t *table) resident(name string, p metrics.Process) {
	t.row(name+"resident memory", "%.0f MiB", p.Resident/(1<<20))
}

// memory adds two rows: the resident memory of a process, and its Go heap in use.
func (t *table) memory(name string, p metrics.Process) {
	t.resident(name, p)
	t.row(name+"Go heap in use", "%.0f MiB", p.Heap/(1<<20))
}

// cpu adds a row with the CPU time of a process in a window, as a part of one core.
func (t *table) cpu(name string, p metrics.Process, window time.Duration) {
	t.row(name+"CPU", "%.1f %% of a core", 100*p.CPU.Seconds()/window.Seconds())
}

// join adds the columns of another table. The rows of both tables have the same names.
func (t *table) join(other table) {
	for i, row := range other {
		if i == len(*t) {
			*t = append(*t, row[:1:1])
		}
		(*t)[i] = append((*t)[i], row[1:]...)
	}
}

func (t *table) print(out io.Writer) error {
	var text strings.Builder
	for _, row := range *t {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
