package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

func TestExplain(t *testing.T) {
	registry := func(code origin.Code) error {
		return fmt.Errorf("as role/a: %w", &origin.Error{Code: code, Err: errors.New("x"), RetryAfter: time.Minute})
	}
	for name, c := range map[string]struct {
		err     error
		reason  string
		stalled bool
		after   time.Duration
		seldom  bool // no retry before the interval has passed
	}{
		"401":           {registry(origin.CodeUnauthorized), "RegistryRefused", false, time.Minute, false},
		"403":           {registry(origin.CodeDenied), "RegistryRefused", false, time.Minute, false},
		"no repository": {registry(origin.CodeNotFound), "RegistryRefused", false, time.Minute, false},
		"no blob":       {registry(origin.CodeBlobNotFound), "RegistryRefused", false, time.Minute, false},
		"no registry":   {registry(origin.CodeProtocol), "RegistryRefused", false, time.Minute, false},
		"a new code":    {registry("new"), "RegistryRefused", false, time.Minute, false},
		"no tag":        {registry(origin.CodeTagNotFound), "ReferenceNotFound", false, time.Minute, true},
		"no version":    {registry(origin.CodeNoMatch), "ReferenceNotFound", false, time.Minute, true},
		"unreachable":   {registry(origin.CodeUnreachable), "RegistryUnreachable", false, time.Minute, false},
		"throttled":     {registry(origin.CodeThrottled), "RegistryUnreachable", false, time.Minute, false},
		"5xx":           {registry(origin.CodeServer), "RegistryUnreachable", false, time.Minute, false},
		"digest":        {registry(origin.CodeDigestMismatch), "DigestMismatch", false, time.Minute, false},
		"truncated":     {registry(origin.CodeTruncated), "DigestMismatch", false, time.Minute, false},
		"layer":         {registry(origin.CodeUnsupportedMediaType), "LayerNotFound", false, time.Minute, true},
		"large layer":   {registry(origin.CodeTooLarge), "ArchiveRefused", false, time.Minute, true},
		"URL":           {registry(origin.CodeInvalidURL), "InvalidURL", true, time.Minute, false},
		"reference":     {registry(origin.CodeInvalidReference), "InvalidSpec", true, time.Minute, false},
		"timeout":       {object.OutOfTime(fmt.Errorf("x: %w", context.DeadlineExceeded)), "RegistryUnreachable", false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := Explain(c.err)
			if !known || got.Reason != c.reason || got.Stalled != c.stalled || got.RetryAfter != c.after || got.AtInterval != c.seldom {
				t.Errorf("%+v, %v, want %+v", got, known, c)
			}
			if got.Message != "" && !strings.Contains(got.Message, c.err.Error()) {
				t.Errorf("message %q lacks %q", got.Message, c.err)
			}
		})
	}
	if got, known := Explain(errors.New("x")); known {
		t.Errorf("it is not a registry's: %+v", got)
	}
	if got, known := Explain(fmt.Errorf("no headers: %w", context.DeadlineExceeded)); known {
		t.Errorf("it is not spec.timeout that has passed: %+v", got)
	}
}
