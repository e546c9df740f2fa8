package source

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

func TestExplain(t *testing.T) {
	identity := func(code auth.Code) error {
		return &auth.Error{Stage: auth.StageExchange, Code: code, Fix: "do this", Err: errors.New("x")}
	}
	for name, c := range map[string]struct {
		err     error
		reason  string
		stalled bool
		after   time.Duration
	}{
		"address":              {fmt.Errorf("x: %w", &endpoint.AddressError{Kind: "loopback"}), "EndpointRefused", false, 0},
		"archive":              {&archive.Error{Reason: archive.ReasonLink, Err: errors.New("x")}, "ArchiveRefused", false, 0},
		"full":                 {&storeError{fmt.Errorf("%w: x", store.ErrFull)}, "StorageFull", false, 0},
		"full while reading":   {fmt.Errorf("%w: x", store.ErrFull), "StorageFull", false, 0},
		"disk":                 {&storeError{errors.New("input/output error")}, "StorageFailed", false, 0},
		"secret":               {&SecretError{"spec.secretRef", "x", "make it", errors.New("does not exist")}, "SecretRefused", false, 0},
		"a kind's own":         {fmt.Errorf("x: %w", errOdd), "Odd", false, 0},
		"refused":              {Invalid("spec.x", "write y", "%d is none", 7), "InvalidSpec", true, 0},
		"anything":             {errors.New("x"), "InternalError", false, 0},
		"trust":                {identity(auth.CodeTrustRefused), "TrustRefused", false, 0},
		"permission":           {identity(auth.CodePermissionDenied), "PermissionDenied", false, 0},
		"cloud down":           {identity(auth.CodeUnavailable), "Unavailable", false, 0},
		"no account":           {identity(auth.CodeSubjectNotFound), "SubjectNotFound", true, 0},
		"no annotation":        {identity(auth.CodeIdentityMissing), "IdentityMissing", true, 0},
		"bad ARN":              {identity(auth.CodeIdentityInvalid), "IdentityInvalid", true, 0},
		"look-alike":           {identity(auth.CodeEndpointRefused), "EndpointRefused", true, 0},
		"no region":            {identity(auth.CodeRegionMissing), "RegionMissing", true, 0},
		"option of a provider": {identity(auth.CodeOptionInvalid), "OptionInvalid", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain(c.err, (&still{}).Explain)
			if got.Reason != c.reason || got.Stalled != c.stalled || got.RetryAfter != c.after {
				t.Errorf("%+v, want %+v", got, c)
			}
			if !strings.Contains(got.Message, c.err.Error()) && !errors.Is(c.err, errOdd) {
				t.Errorf("message %q lacks %q", got.Message, c.err)
			}
		})
	}
	if got := explain(errors.New(strings.Repeat("ä", 5000)), (&still{}).Explain); len(got.Message) > maxMessage || !strings.HasSuffix(got.Message, "ä…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(got.Message), got.Message[len(got.Message)-8:])
	}
}
