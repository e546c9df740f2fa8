// Package report describes an object in one row. The row has the identity with which the object
// acts, the result and the reason. The commands lanyard up and lanyard status print the rows.
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
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/examples"
)

// Result is the state of an object in one word, such as Pulled or Refused.
type Result string

// The results.
const (
	// Pulled: the artifact that the spec asks for is served.
	Pulled Result = "Pulled"
	// Applied: the cluster has the objects of the artifact.
	Applied Result = "Applied"
	// Scanned: the image that the spec names was scanned.
	Scanned Result = "Scanned"
	// Ready: the AWSCluster or the AWS identity gets credentials.
	Ready Result = "Ready"
	// Delivered: the Secret of a binding has a fresh credential.
	Delivered Result = "Delivered"
	// Refused: a cloud, a registry or the controller refused. Somebody must change something.
	Refused Result = "Refused"
	// Failed: the fetch failed without a refusal, for example because a registry is down or a tag
	// does not exist.
	Failed Result = "Failed"
	// Pending: the controller has not processed the object's present spec yet.
	Pending Result = "Pending"
	// Suspended: spec.suspend stops the object's reconciliation.
	Suspended Result = "Suspended"
)

// Row describes one object. It leaves out status.artifact.url: whoever knows this URL can read the
// artifact.
type Row struct {
	// Namespace, Kind and Name identify the object.
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Source names the thing to fetch: a repository's URL, a bucket with its endpoint, an image.
	// For a binding, Source names the Secret.
	Source string `json:"source"`
	// Subject is the subject whose credential was used. If no credential was used, Subject is the
	// subject that the object asks for. Empty if the object asks for no subject. Examples:
	//
	//   - "system:serviceaccount:<namespace>:<name>"
	//   - "lanyard.dev:workloadidentity:<namespace>:<name>"
	//   - an AWS identity such as "lanyard.dev:awsclusterroleidentity:<name>"
	//   - "controller"
	Subject string `json:"subject,omitempty"`
	// Identity is the cloud identity that was used. It is the subject if the cloud accepted the
	// subject itself. Empty if no cloud identity was used. Examples of cloud identities:
	//
	//   - for AWS, a role's ARN
	//   - for Azure, the tenant and the client ID
	//   - for Google, a service account
	Identity string `json:"identity,omitempty"`
	// Result is the object's result.
	Result Result `json:"result"`
	// Revision is the revision of the artifact that is served, "<tag>@<digest>" or "<digest>". It
	// stays while later attempts fail.
	Revision string `json:"revision,omitempty"`
	// Tags is how many tags the last scan found; absent if nothing was scanned.
	Tags *int `json:"tags,omitempty"`
	// ExpiresAt is when the credential of a binding ends, UTC; absent for other kinds.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Reason and Message are those of the condition Ready.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Expected is the expected result, the value of the object's annotation
	// demo.lanyard.dev/expect; empty without this annotation.
	Expected string `json:"expected,omitempty"`
	// AsExpected reports whether the row meets Expected; absent if Expected is empty.
	AsExpected *bool `json:"asExpected,omitempty"`
}

// Of returns an object's row.
func Of(o Object) Row {
	ready := apimeta.FindStatusCondition(o.GetStatus().Conditions, meta.ConditionReady)
	if ready == nil {
		ready = &metav1.Condition{}
	}
	row := Row{
		Namespace: o.GetNamespace(),
		Kind:      o.Kind.Kind,
		Name:      o.GetName(),
		Subject:   subject(o),
		Result:    result(o, ready),
		Reason:    ready.Reason,
		Message:   ready.Message,
		Expected:  o.GetAnnotations()[examples.ExpectAnnotation],
	}
	if o.Kind.Source != nil {
		row.Source = o.Kind.Source(o.Resource)
	}
	if found := o.found(); found != nil {
		row.Revision, row.Tags, row.ExpiresAt, row.Identity = found.Revision, found.Tags, found.ExpiresAt, found.CloudIdentity
	}
	if row.Result == Delivered {
		// For a binding, show the subject: the status does not have the identity that the subject
		// has at the target.
		row.Identity = row.Subject
	}
	if row.Result == Applied {
		row.Identity = row.Subject // the account that applies is no cloud's
	}
	if id := o.Used(); id != nil && !aboutAWS(o.Kind) {
		// If the status has no cloud identity, the cloud accepted the subject itself.
		row.Subject, row.Identity = id.Subject, cmp.Or(id.CloudIdentity, id.Subject)
	}
	if row.Expected != "" {
		met := row.meets(row.Expected)
		row.AsExpected = &met
	}
	return row
}

// subject returns the name of the subject that the spec names; empty if it names none. A wrong name
// gives no subject: the condition Ready says what is wrong.
func subject(o Object) string {
	named, _ := o.Kind.NamedIdentity(o.Resource) // zero after an error
	if o.Kind.AWSIdentity {
		named, _ = spec.AWSIdentity(o.Kind.Kind, o.GetNamespace(), o.GetName())
	}
	if o.Kind.WorkloadIdentity != nil {
		if identity := o.Kind.WorkloadIdentity(o.Resource); identity != "" {
			named, _ = auth.WorkloadIdentity(o.GetNamespace(), identity)
		}
	}
	if o.Kind.Fields != nil {
		if account := o.Kind.Fields(o.Resource).ServiceAccountName; account != "" {
			named, _ = auth.ServiceAccount(o.GetNamespace(), account)
		}
	}
	if o.Kind.Account != nil {
		named, _ = auth.ServiceAccount(o.GetNamespace(), o.Kind.Account(o.Resource))
	}
	if named.IsZero() {
		return ""
	}
	return named.String()
}

// All returns the rows of objects, sorted by namespace, kind and name.
func All(objects []Object) []Row {
	rows := make([]Row, 0, len(objects))
	for _, o := range objects {
		rows = append(rows, Of(o))
	}
	slices.SortFunc(rows, compare)
	return rows
}

// compare orders rows by namespace, kind and name.
func compare(a, b Row) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Values of the annotation demo.lanyard.dev/expect.
const (
	// ExpectPulled expects success: the object has its artifact, its scan or its credential.
	ExpectPulled = "pulled"
	// ExpectRefused, followed by a reason, expects a refusal for that reason and no artifact.
	ExpectRefused = "refused:"
)

// CheckExpectation returns an error if value is invalid for the annotation demo.lanyard.dev/expect.
// The valid values are [ExpectPulled], and [ExpectRefused] followed by a reason.
func CheckExpectation(value string) error {
	if reason, ok := strings.CutPrefix(value, ExpectRefused); value == ExpectPulled || ok && reason != "" {
		return nil
	}
	return fmt.Errorf("annotation %s: %q is not an expectation; write %q, or %q and a reason such as %s",
		examples.ExpectAnnotation, value, ExpectPulled, ExpectRefused, auth.CodeTrustRefused)
}

// meets reports whether the row meets the expectation. A malformed expectation is never met.
func (r Row) meets(expected string) bool {
	if expected == ExpectPulled {
		return r.done()
	}
	reason, ok := strings.CutPrefix(expected, ExpectRefused)
	// An object that still has its artifact from before the refusal does not count as refused.
	return ok && reason != "" && r.Result == Refused && r.Reason == reason && r.Revision == "" && r.Tags == nil
}

// done reports whether the object has its artifact, its scan or its credential. Each kind has its
// own Result for success. So done compares the Result with those that do not mean success.
func (r Row) done() bool {
	return r.Result != Refused && r.Result != Failed && r.Result != Pending && r.Result != Suspended
}

// OK reports whether the row meets its expectation or, without an expectation, whether the object
// has its artifact, its scan or its credential.
func (r Row) OK() bool {
	if r.AsExpected != nil {
		return *r.AsExpected
	}
	return r.done()
}

// CountOK counts the rows that are OK.
func CountOK(rows []Row) int {
	good := 0
	for _, r := range rows {
		if r.OK() {
			good++
		}
	}
	return good
}

func result(o Object, ready *metav1.Condition) Result {
	switch {
	case o.Suspended():
		return Suspended
	case o.GetStatus().ObservedGeneration != o.GetGeneration():
		return Pending
	case ready.Status == metav1.ConditionTrue && o.found() != nil:
		return Result(o.Kind.Success)
	case ready.Status != metav1.ConditionFalse:
		return Pending
	case refusal(ready.Reason):
		return Refused
	}
	return Failed
}

// refusal reports whether a reason means a refusal. An unknown reason counts as a failure, so that
// no row shows a refusal that did not happen.
func refusal(reason string) bool {
	switch reason {
	case meta.ReasonInvalidSpec, meta.ReasonUnsupportedProvider, meta.ReasonInvalidURL, meta.ReasonSecretRefused,
		meta.ReasonRegistryRefused, meta.ReasonBucketRefused, meta.ReasonArchiveRefused,
		meta.ReasonArtifactRefused, meta.ReasonBuildFailed, meta.ReasonApplyRefused,
		meta.ReasonPrincipalUsageUnauthorized, meta.ReasonSourcePrincipalUsageUnauthorized, meta.ReasonSourceOnly, meta.ReasonSourceCycle,
		meta.ReasonSourceChainTooLong, meta.ReasonControllerIdentityMissing, meta.ReasonSecretNamespaceRefused,
		meta.ReasonStaticIdentityNotForSources, meta.ReasonAccountMismatch:
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
