// Command kinds prints the Helm template with the lists of Lanyard's kinds. The script dev/generate
// writes the output into the chart.
package main

import (
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/internal/kinds"
)

func main() {
	if _, err := fmt.Print(kinds.All().ChartTemplate()); err != nil {
		os.Exit(1)
	}
}
