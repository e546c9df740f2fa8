// Command kinds prints the Helm template with the lists of Lanyard's kinds. The script dev/generate
// writes the output into the chart.
package main

import (
	"io"
	"os"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

func main() {
	if _, err := io.WriteString(os.Stdout, kinds.All().ChartTemplate()); err != nil {
		os.Exit(1)
	}
}
