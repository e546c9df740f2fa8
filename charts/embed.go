// Package charts holds Lanyard's Helm chart, so that programs can render it
// without a copy of the repository.
package charts

import (
	"embed"
	"io/fs"
)

// Without the prefix "all:", files whose names begin with an underscore would be left out, such as
// Helm's helper templates.
//
//go:embed all:lanyard
var files embed.FS

// Lanyard returns the chart lanyard. Chart.yaml is at the root of the file system.
func Lanyard() (fs.FS, error) {
	return fs.Sub(files, "lanyard")
}
