// Command child is the child of the tests: it builds, and does nothing else.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
	"github.com/lanyard-dev/lanyard/internal/sopsfile"
)

func main() {
	if err := sandbox.Serve(context.Background(), os.Args[1:], sandbox.Functions{kustomize.Function: kustomize.Server{Open: sopsfile.Open}.Serve}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
