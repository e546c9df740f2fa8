// Package series measures something at several sizes, and prints a table with a column for each
// size.
package series

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Main runs a measurement until it ends or the program is interrupted. After an error the program
// exits with 1. The name is that of the program.
func Main(ctx context.Context, name string, run func(context.Context) error) {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Sizes reads the value of a flag: numbers from least on, with commas between them.
func Sizes(flag, text string, least int) ([]int, error) {
	var sizes []int
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < least {
			return nil, fmt.Errorf("--%s: %q is no number from %d on", flag, word, least)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// Measure measures each size and prints a table of the results on standard output. The parameter
// what names that of which there are so many. If a size fails, the table has the sizes before,
// because they took long.
func Measure[R any](sizes []int, what string, measure func(n int) (R, error), rows func(*Table[R])) error {
	t := &Table[R]{}
	for _, n := range sizes {
		_, _ = fmt.Fprintf(os.Stderr, "%d %s\n", n, what)
		r, err := measure(n)
		if err != nil {
			err = fmt.Errorf("%d %s: %w", n, what, err)
			if len(t.Results) > 0 {
				err = errors.Join(err, t.print(rows))
			}
			return err
		}
		t.Results = append(t.Results, r)
	}
	return t.print(rows)
}

// Table is a table in Markdown, with a column for each result.
type Table[R any] struct {
	// Results are those so far, at least one.
	Results []R

	text strings.Builder
}

// Head adds the first row, which has the sizes.
func (t *Table[R]) Head(name string, cell func(R) string) {
	t.Row(name, cell)
	t.Row("---", func(R) string { return "---:" })
}

// Row adds a row with a cell for each result.
func (t *Table[R]) Row(name string, cell func(R) string) {
	t.text.WriteString("| " + name)
	for _, r := range t.Results {
		t.text.WriteString(" | " + cell(r))
	}
	t.text.WriteString(" |\n")
}

// Count returns the cell of a number.
func Count[R any](of func(R) int) func(R) string {
	return func(r R) string { return strconv.Itoa(of(r)) }
}

// Seconds returns the cell of a duration, rounded.
func Seconds[R any](to time.Duration, of func(R) time.Duration) func(R) string {
	return func(r R) string { return of(r).Round(to).String() }
}

// MiB returns the cell of a number of bytes.
func MiB[R any](of func(R) float64) func(R) string {
	return func(r R) string { return fmt.Sprintf("%.0f MiB", of(r)/(1<<20)) }
}

func (t *Table[R]) print(rows func(*Table[R])) error {
	rows(t)
	_, err := io.WriteString(os.Stdout, t.text.String())
	return err
}
