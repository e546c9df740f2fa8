// Package report says in one row what came of an object: as whom it was fetched, with what result, and why. The commands
// lanyard up and lanyard status print the rows.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/examples"
)

// Result is what came of an object, in one word.
type Result string

// The results.
const (
	// Pulled: the artifact that the spec asks for is served.
	Pulled Result = "Pulled"
	// Scanned: the image that the spec names was scanned.
	Scanned Result = "Scanned"
	// Refused: somebody said no, for good or until something is changed.
	Refused Result = "Refused"
	// Failed: it did not work, and nobody refused it: a registry that is down, a tag that is not there.
	Failed Result = "Failed"
	// Pending: the controller has not judged the object's present spec yet.
	Pending Result = "Pending"
	// Suspended: spec.suspend holds the object.
	Suspended Result = "Suspended"
)

// Row is what came of one object. It leaves out status.artifact.url, which is a key to the artifact.
type Row struct {
	// Namespace, Kind and Name are the object's.
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Source is what was to be fetched: a repository's URL, a bucket with its endpoint, an image.
	Source string `json:"source"`
	// Subject is whose credential was used or, if none was, asked for, as tokens name it:
	// "system:serviceaccount:<namespace>:<name>", or "controller". Empty where the object asks for none.
	Subject string `json:"subject,omitempty"`
	// Identity is the cloud identity that was used: for AWS a role's ARN, for Azure the tenant and the client ID, for Google a service
	// account. It is the subject itself where that was let in. Empty if none was granted.
	Identity string `json:"identity,omitempty"`
	// Result is what came of it.
	Result Result `json:"result"`
	// Revision is the artifact that is served, "<tag>@<digest>" or "<digest>". It stays while later attempts fail.
	Revision string `json:"revision,omitempty"`
	// Tags is how many tags the last scan found; absent where nothing was scanned.
	Tags *int `json:"tags,omitempty"`
	// Reason and Message are those of the condition Ready.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Expected is what the object's annotation demo.lanyard.dev/expect says must come of it; empty if it has none.
	Expected string `json:"expected,omitempty"`
	// AsExpected says whether that came; absent if nothing is expected.
	AsExpected *bool `json:"asExpected,omitempty"`
}

// Of makes an object's row.
func Of(o Object) Row {
	ready := apimeta.FindStatusCondition(o.Conditions, meta.ConditionReady)
	if ready == nil {
		ready = &metav1.Condition{}
	}
	row := Row{
		Namespace: o.GetNamespace(),
		Kind:      o.Kind,
		Name:      o.GetName(),
		Source:    o.Source,
		Result:    result(o, ready),
		Reason:    ready.Reason,
		Message:   ready.Message,
		Expected:  o.GetAnnotations()[examples.ExpectAnnotation],
	}
	if o.Account != "" {
		row.Subject = "system:serviceaccount:" + o.GetNamespace() + ":" + o.Account
	}
	if id := o.Identity; id != nil {
		// Where no identity stands between, the subject itself was let in.
		row.Subject, row.Identity = id.Subject, cmp.Or(id.CloudIdentity, id.Subject)
	}
	if o.Artifact != nil {
		row.Revision = o.Artifact.Revision
	}
	if o.Scan != nil {
		row.Tags = &o.Scan.TagCount
	}
	if row.Expected != "" {
		met := row.meets(row.Expected)
		row.AsExpected = &met
	}
	return row
}

// All makes the rows of objects, sorted by namespace, kind and name.
func All(objects []Object) []Row {
	rows := make([]Row, 0, len(objects))
	for _, o := range objects {
		rows = append(rows, Of(o))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// Values of the annotation demo.lanyard.dev/expect.
const (
	// ExpectPulled expects the artifact, or the scan.
	ExpectPulled = "pulled"
	// ExpectRefused expects, with a reason behind it, to be refused for that reason and to have no artifact.
	ExpectRefused = "refused:"
)

// CheckExpectation refuses a value of the annotation that no row could meet.
func CheckExpectation(value string) error {
	if reason, ok := strings.CutPrefix(value, ExpectRefused); value == ExpectPulled || ok && reason != "" {
		return nil
	}
	return fmt.Errorf("annotation %s: %q is no expectation; write %q, or %q and a reason such as %s",
		examples.ExpectAnnotation, value, ExpectPulled, ExpectRefused, auth.CodeTrustRefused)
}

// meets says whether the row is as expected. What is no expectation is never met.
func (r Row) meets(expected string) bool {
	if expected == ExpectPulled {
		return r.done()
	}
	reason, ok := strings.CutPrefix(expected, ExpectRefused)
	// An object that got the artifact first and was refused later was not refused.
	return ok && reason != "" && r.Result == Refused && r.Reason == reason && r.Revision == "" && r.Tags == nil
}

// done says whether the object has got what it asks for.
func (r Row) done() bool { return r.Result == Pulled || r.Result == Scanned }

// OK says whether the row is as expected; where nothing is expected, whether the object has got what it asks for.
func (r Row) OK() bool {
	if r.AsExpected != nil {
		return *r.AsExpected
	}
	return r.done()
}

func result(o Object, ready *metav1.Condition) Result {
	switch {
	case o.Suspended:
		return Suspended
	case o.Observed != o.GetGeneration():
		return Pending
	case ready.Status == metav1.ConditionTrue && o.Artifact != nil:
		return Pulled
	case ready.Status == metav1.ConditionTrue && o.Scan != nil:
		return Scanned
	case ready.Status != metav1.ConditionFalse:
		return Pending
	case refusal(ready.Reason):
		return Refused
	}
	return Failed
}

// refusal says whether a reason means that somebody said no. A reason that is not known here is a failure: nobody should
// take an accident for protection.
func refusal(reason string) bool {
	switch reason {
	case meta.ReasonInvalidSpec, meta.ReasonUnsupportedProvider, meta.ReasonInvalidURL, meta.ReasonSecretRefused,
		meta.ReasonRegistryRefused, meta.ReasonBucketRefused, meta.ReasonArchiveRefused:
		return true
	}
	switch auth.Code(reason) {
	case auth.CodeSubjectInvalid, auth.CodeSubjectNotFound, auth.CodeSubjectReplaced, auth.CodeIdentityMissing, auth.CodeIdentityInvalid,
		auth.CodeNotGranted, auth.CodeOptionUnsupported, auth.CodeOptionInvalid, auth.CodeEndpointRefused, auth.CodeRegionMissing,
		auth.CodeAudienceRefused, auth.CodeProofDenied, auth.CodeProofInvalid, auth.CodeTrustRefused, auth.CodePermissionDenied,
		auth.CodeRefused:
		return true
	default:
		return false
	}
}
