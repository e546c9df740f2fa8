package stage

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// verdict is the testing.TB for [Suite.Judge]: it collects the errors. Only the methods below are
// implemented; others panic.
type verdict struct {
	testing.TB

	ctx  context.Context //nolint:containedctx // as a testing.TB has it
	errs []error
}

// fatal is the value with which Fatalf panics.
type fatal struct{}

func (v *verdict) Helper()                  {}
func (v *verdict) Logf(string, ...any)      {}
func (v *verdict) Context() context.Context { return v.ctx }
func (v *verdict) Error(args ...any)        { v.errs = append(v.errs, errors.New(fmt.Sprint(args...))) }

func (v *verdict) Errorf(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	panic(fatal{})
}

// judge calls a function that checks the run, and returns all errors that the function reports.
func judge(ctx context.Context, look func(t testing.TB)) (err error) {
	v := &verdict{ctx: ctx}
	defer func() {
		if p := recover(); p != nil && p != any(fatal{}) {
			panic(p)
		}
		err = errors.Join(v.errs...)
	}()
	look(v)
	return nil
}
