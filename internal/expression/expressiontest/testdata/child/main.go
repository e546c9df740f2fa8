// Command child is the child of the tests: it evaluates expressions, and does nothing else.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

func main() {
	var server expression.Server
	if err := sandbox.Serve(context.Background(), os.Args[1:], sandbox.Functions{expression.Function: server.Serve}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
