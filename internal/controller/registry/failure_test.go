package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

func TestExplain(t *testing.T) {
	registry := func(code oci.Code) error {
		return fmt.Errorf("as role/a: %w", &oci.Error{Code: code, Err: errors.New("x"), RetryAfter: time.Minute})
	}
	for name, c := range map[string]struct {
		err     error
		reason  string
		stalled bool
		after   time.Duration
		seldom  bool // at the interval
	}{
		"401":           {registry(oci.CodeUnauthorized), "RegistryRefused", false, time.Minute, false},
		"403":           {registry(oci.CodeDenied), "RegistryRefused", false, time.Minute, false},
		"no repository": {registry(oci.CodeRepositoryNotFound), "RegistryRefused", false, time.Minute, false},
		"no blob":       {registry(oci.CodeBlobNotFound), "RegistryRefused", false, time.Minute, false},
		"no registry":   {registry(oci.CodeProtocol), "RegistryRefused", false, time.Minute, false},
		"a new code":    {registry("new"), "RegistryRefused", false, time.Minute, false},
		"no tag":        {registry(oci.CodeTagNotFound), "ReferenceNotFound", false, time.Minute, true},
		"no version":    {registry(oci.CodeNoMatch), "ReferenceNotFound", false, time.Minute, true},
		"unreachable":   {registry(oci.CodeUnreachable), "RegistryUnreachable", false, time.Minute, false},
		"throttled":     {registry(oci.CodeThrottled), "RegistryUnreachable", false, time.Minute, false},
		"5xx":           {registry(oci.CodeServer), "RegistryUnreachable", false, time.Minute, false},
		"digest":        {registry(oci.CodeDigestMismatch), "DigestMismatch", false, time.Minute, false},
		"truncated":     {registry(oci.CodeTruncated), "DigestMismatch", false, time.Minute, false},
		"layer":         {registry(oci.CodeUnsupportedMediaType), "LayerNotFound", false, time.Minute, true},
		"large layer":   {registry(oci.CodeTooLarge), "ArchiveRefused", false, time.Minute, true},
		"URL":           {registry(oci.CodeInvalidURL), "InvalidURL", true, time.Minute, false},
		"reference":     {registry(oci.CodeInvalidReference), "InvalidSpec", true, time.Minute, false},
		"timeout":       {fmt.Errorf("x: %w", context.DeadlineExceeded), "RegistryUnreachable", false, 0, false},
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
}
