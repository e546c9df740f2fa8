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
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/examples"
)

// Result is what came of an object, in one word.
type Result string

// The results.
const (
	// Pulled: the artifact that the spec asks for is served.
	Pulled Result = "Pulled"
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
	// Namespace and Name are the object's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// URL is what was to be fetched: spec.url.
	URL string `json:"url"`
	// Subject is whose credential was used or, if none was, asked for, as tokens name it:
	// "system:serviceaccount:<namespace>:<name>", or "controller". Empty where the object asks for none.
	Subject string `json:"subject,omitempty"`
	// Identity is the cloud identity that was used, for AWS a role's ARN. Empty if none was granted.
	Identity string `json:"identity,omitempty"`
	// Result is what came of it.
	Result Result `json:"result"`
	// Revision is the artifact that is served, "<tag>@<digest>" or "<digest>". It stays while later attempts fail.
	Revision string `json:"revision,omitempty"`
	// Reason and Message are those of the condition Ready.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Expected is what the object's annotation demo.lanyard.dev/expect says must come of it; empty if it has none.
	Expected string `json:"expected,omitempty"`
	// AsExpected says whether that came; absent if nothing is expected.
	AsExpected *bool `json:"asExpected,omitempty"`
}

// Of makes an object's row.
func Of(o *v1alpha1.OCIRepository) Row {
	ready := readyOf(o)
	row := Row{
		Namespace: o.Namespace,
		Name:      o.Name,
		URL:       o.Spec.URL,
		Result:    result(o, ready),
		Reason:    ready.Reason,
		Message:   ready.Message,
		Expected:  o.Annotations[examples.ExpectAnnotation],
	}
	if name := o.Spec.ServiceAccountName; name != "" {
		row.Subject = "system:serviceaccount:" + o.Namespace + ":" + name
	}
	if id := o.Status.Identity; id != nil {
		row.Subject, row.Identity = id.Subject, id.CloudIdentity
	}
	if a := o.Status.Artifact; a != nil {
		row.Revision = a.Revision
	}
	if row.Expected != "" {
		met := row.meets(row.Expected)
		row.AsExpected = &met
	}
	return row
}

// All makes the rows of objects, sorted by namespace and name.
func All(objects []v1alpha1.OCIRepository) []Row {
	rows := make([]Row, 0, len(objects))
	for i := range objects {
		rows = append(rows, Of(&objects[i]))
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return rows
}

// Values of the annotation demo.lanyard.dev/expect.
const (
	// ExpectPulled expects the artifact.
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
		return r.Result == Pulled
	}
	reason, ok := strings.CutPrefix(expected, ExpectRefused)
	// An object that got the artifact first and was refused later was not refused.
	return ok && reason != "" && r.Result == Refused && r.Reason == reason && r.Revision == ""
}

// OK says whether the row is as expected; where nothing is expected, whether the artifact is served.
func (r Row) OK() bool {
	if r.AsExpected != nil {
		return *r.AsExpected
	}
	return r.Result == Pulled
}

func readyOf(o *v1alpha1.OCIRepository) metav1.Condition {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, meta.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func result(o *v1alpha1.OCIRepository, ready metav1.Condition) Result {
	switch {
	case o.Spec.Suspend:
		return Suspended
	case o.Status.ObservedGeneration != o.Generation:
		return Pending
	case ready.Status == metav1.ConditionTrue && o.Status.Artifact != nil:
		return Pulled
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
		meta.ReasonRegistryRefused, meta.ReasonArchiveRefused:
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
