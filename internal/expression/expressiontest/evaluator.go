// Package expressiontest has an evaluator with real children, for tests.
package expressiontest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/expression"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// New returns an evaluator. Its children end with the test. A test binary with the race detector
// cannot be a child itself, so New builds a program.
func New(tb testing.TB) *expression.Evaluator {
	tb.Helper()
	child := filepath.Join(tb.TempDir(), "child")
	//nolint:gosec // the path is of a temporary folder
	build := exec.CommandContext(tb.Context(), "go", "build", "-o", child, "github.com/lanyard-dev/lanyard/internal/expression/expressiontest/testdata/child")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the child: %v\n%s", err, output)
	}
	pool := sandbox.New(child, sandbox.Limits{
		Children: 2, Memory: 192 << 20, Time: 20 * time.Second, Request: 16 << 20, Answer: 1 << 20, Requests: 10, Idle: time.Minute,
	})
	tb.Cleanup(pool.Close)
	return expression.NewEvaluator(pool)
}
