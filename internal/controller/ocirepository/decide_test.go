package ocirepository

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
)

func TestDecide(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		facts    func(*facts)
		action   action
		anew     bool
		retryNow bool
	}{
		"new object":                {facts: func(f *facts) { f.object.Status = v1alpha1.OCIRepositoryStatus{}; f.stored = false }, action: fetch, anew: true},
		"new object with a request": {facts: func(f *facts) { f.object.Status = v1alpha1.OCIRepositoryStatus{}; request(f.object, "1") }, action: fetch},
		"nothing changed":           {facts: func(*facts) {}, action: fetch},
		"artifact lost":             {facts: func(f *facts) { f.stored = false }, action: fetch, anew: true},
		"new generation":            {facts: func(f *facts) { f.object.Generation = 8 }, action: fetch, retryNow: true},
		"request":                   {facts: func(f *facts) { request(f.object, "1") }, action: fetch, retryNow: true},
		"request that was handled": {
			facts:  func(f *facts) { request(f.object, "1"); f.object.Status.LastHandledReconcileAt = "1" },
			action: fetch,
		},
		"long request that was handled": {
			facts: func(f *facts) {
				request(f.object, strings.Repeat("x", 9999))
				f.object.Status.LastHandledReconcileAt = requested(f.object)
			},
			action: fetch,
		},
		"waits for its account": {
			facts:  func(f *facts) { markFailed(f.object, failure{reason: "SubjectNotFound", stalled: true}, true) },
			action: fetch, retryNow: true,
		},
		"other ignore":                    {facts: func(f *facts) { f.object.Spec.Ignore = text("*.md") }, action: fetch, anew: true},
		"ignore emptied":                  {facts: func(f *facts) { f.object.Spec.Ignore = text(""); f.object.Status.ObservedIgnore = text("x") }, action: fetch, anew: true},
		"other layer":                     {facts: func(f *facts) { f.object.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: "copy"} }, action: fetch, anew: true},
		"suspended":                       {facts: func(f *facts) { f.object.Spec.Suspend = true }, action: suspend},
		"suspended wins over nonsense":    {facts: func(f *facts) { f.object.Spec.Suspend = true; f.object.Spec.URL = "?" }, action: suspend},
		"identity refused":                {facts: func(f *facts) { f.refused = errors.New("no") }, action: refuse},
		"URL":                             {facts: func(f *facts) { f.object.Spec.URL = "https://x/y" }, action: refuse},
		"reference":                       {facts: func(f *facts) { f.object.Spec.Ref = &v1alpha1.OCIRepositoryRef{Digest: "md5:1"} }, action: refuse},
		"operation":                       {facts: func(f *facts) { f.object.Spec.LayerSelector = &v1alpha1.OCILayerSelector{Operation: "run"} }, action: refuse},
		"ignore":                          {facts: func(f *facts) { f.object.Spec.Ignore = text("[") }, action: refuse},
		"interval too short":              {facts: func(f *facts) { f.object.Spec.Interval.Duration = time.Millisecond }, action: refuse},
		"interval too long":               {facts: func(f *facts) { f.object.Spec.Interval.Duration = 9000 * time.Hour }, action: refuse},
		"timeout too short":               {facts: func(f *facts) { f.object.Spec.Timeout = &metav1.Duration{} }, action: refuse},
		"timeout too long":                {facts: func(f *facts) { f.object.Spec.Timeout = &metav1.Duration{Duration: time.Hour} }, action: refuse},
		"negative interval with a cloud!": {facts: func(f *facts) { f.object.Spec.Interval.Duration = -time.Hour }, action: refuse},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{stored: true, object: &v1alpha1.OCIRepository{
				ObjectMeta: metav1.ObjectMeta{Generation: 7},
				Spec:       v1alpha1.OCIRepositorySpec{URL: "oci://registry.example.com/app", Interval: metav1.Duration{Duration: time.Minute}},
				Status:     v1alpha1.OCIRepositoryStatus{ObservedGeneration: 7, Artifact: &v1alpha1.Artifact{Revision: "v1@sha256:1"}},
			}}
			c.facts(&f)
			got := decide(f)
			if got.action != c.action || got.anew != c.anew || got.retryNow != c.retryNow || (got.refusal != nil) != (c.action == refuse) {
				t.Errorf("%+v, want %+v", got, c)
			}
			if c.action == refuse && f.refused == nil && !explain(got.refusal).stalled {
				t.Errorf("%v is not terminal", got.refusal)
			}
			if c.action == fetch && got.timeout != defaultTimeout {
				t.Errorf("timeout %s", got.timeout)
			}
		})
	}
}

func request(o *v1alpha1.OCIRepository, value string) {
	o.Annotations = map[string]string{meta.ReconcileRequestedAnnotation: value}
}

func TestUpToDate(t *testing.T) {
	o := &v1alpha1.OCIRepository{}
	if upToDate(o, plan{}, "") {
		t.Error("without an artifact")
	}
	o.Status.Artifact = &v1alpha1.Artifact{Revision: "v1@sha256:1"}
	if !upToDate(o, plan{}, "v1@sha256:1") || upToDate(o, plan{}, "v1@sha256:2") || upToDate(o, plan{anew: true}, "v1@sha256:1") {
		t.Error("with an artifact")
	}
}

func TestExplain(t *testing.T) {
	registry := func(code oci.Code) error {
		return fmt.Errorf("as role/a: %w", &oci.Error{Code: code, Err: errors.New("x"), RetryAfter: time.Minute})
	}
	identity := func(code auth.Code) error {
		return &auth.Error{Stage: auth.StageExchange, Code: code, Fix: "do this", Err: errors.New("x")}
	}
	for name, c := range map[string]struct {
		err     error
		reason  string
		stalled bool
		after   time.Duration
	}{
		"401":                  {registry(oci.CodeUnauthorized), "RegistryRefused", false, time.Minute},
		"403":                  {registry(oci.CodeDenied), "RegistryRefused", false, time.Minute},
		"no repository":        {registry(oci.CodeRepositoryNotFound), "RegistryRefused", false, time.Minute},
		"no blob":              {registry(oci.CodeBlobNotFound), "RegistryRefused", false, time.Minute},
		"no registry":          {registry(oci.CodeProtocol), "RegistryRefused", false, time.Minute},
		"a new code":           {registry("new"), "RegistryRefused", false, time.Minute},
		"no tag":               {registry(oci.CodeTagNotFound), "ReferenceNotFound", false, time.Minute},
		"no version":           {registry(oci.CodeNoMatch), "ReferenceNotFound", false, time.Minute},
		"unreachable":          {registry(oci.CodeUnreachable), "RegistryUnreachable", false, time.Minute},
		"throttled":            {registry(oci.CodeThrottled), "RegistryUnreachable", false, time.Minute},
		"5xx":                  {registry(oci.CodeServer), "RegistryUnreachable", false, time.Minute},
		"digest":               {registry(oci.CodeDigestMismatch), "DigestMismatch", false, time.Minute},
		"truncated":            {registry(oci.CodeTruncated), "DigestMismatch", false, time.Minute},
		"layer":                {registry(oci.CodeUnsupportedMediaType), "LayerNotFound", false, time.Minute},
		"large layer":          {registry(oci.CodeTooLarge), "ArchiveRefused", false, time.Minute},
		"URL":                  {registry(oci.CodeInvalidURL), "InvalidURL", true, time.Minute},
		"reference":            {registry(oci.CodeInvalidReference), "InvalidSpec", true, time.Minute},
		"address":              {fmt.Errorf("x: %w", &endpoint.AddressError{Kind: "loopback"}), "EndpointRefused", false, 0},
		"archive":              {&archive.Error{Reason: archive.ReasonLink, Err: errors.New("x")}, "ArchiveRefused", false, 0},
		"full":                 {&storeError{fmt.Errorf("%w: x", store.ErrFull)}, "StorageFull", false, 0},
		"full while reading":   {fmt.Errorf("%w: x", store.ErrFull), "StorageFull", false, 0},
		"disk":                 {&storeError{errors.New("input/output error")}, "StorageFailed", false, 0},
		"secret":               {&secretError{"spec.secretRef", "x", "make it", errors.New("does not exist")}, "SecretRefused", false, 0},
		"timeout":              {fmt.Errorf("x: %w", context.DeadlineExceeded), "RegistryUnreachable", false, 0},
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
			got := explain(c.err)
			if got.reason != c.reason || got.stalled != c.stalled || got.after != c.after {
				t.Errorf("%+v, want %+v", got, c)
			}
			if !strings.Contains(got.message, c.err.Error()) {
				t.Errorf("message %q lacks %q", got.message, c.err)
			}
		})
	}
	if got := explain(errors.New(strings.Repeat("ä", 5000))); len(got.message) > maxMessage || !strings.HasSuffix(got.message, "ä…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(got.message), got.message[len(got.message)-8:])
	}
}

func TestNameLimit(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		named bool
	}{
		"nothing":        {nil, false},
		"unpacked size":  {&archive.Error{Reason: archive.ReasonTooLarge, Err: errors.New("x")}, true},
		"packed size":    {&oci.Error{Code: oci.CodeTooLarge, Err: errors.New("x")}, true},
		"files":          {&archive.Error{Reason: archive.ReasonTooMany, Err: errors.New("x")}, false},
		"anything else":  {&oci.Error{Code: oci.CodeTruncated, Err: errors.New("x")}, false},
		"another reason": {errors.New("x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := nameLimit(c.err)
			if !errors.Is(got, c.err) {
				t.Errorf("%v does not wrap %v", got, c.err)
			}
			if named := got != nil && strings.Contains(got.Error(), "--artifact-max-decompressed-size"); named != c.named {
				t.Errorf("%v; the flag is to be named: %v", got, c.named)
			}
		})
	}
}
