// Package charts holds Lanyard's Helm chart, so that programs can render it
// without a copy of the repository.
package charts

import (
	"embed"
	"io/fs"
)

// The prefix all: includes the files whose names begin with an underscore, as Helm's helper
// templates do.
//
//go:embed all:lanyard
var files embed.FS

// Lanyard returns the chart lanyard; Chart.yaml lies at the root of the file
// system.
func Lanyard() (fs.FS, error) {
	return fs.Sub(files, "lanyard")
}
