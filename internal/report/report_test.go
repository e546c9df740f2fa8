package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/golden"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/must"
	"github.com/lanyard-dev/lanyard/internal/report"
)

const digest = "sha256:3b4c0d0e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c"

type option func(*v1alpha1.OCIRepository)

// repository returns an OCIRepository whose present spec the controller has processed.
func repository(namespace, name, account string, options ...option) v1alpha1.OCIRepository {
	o := v1alpha1.OCIRepository{}
	o.Namespace, o.Name, o.Generation = namespace, name, 1
	o.Spec.URL = "oci://123456789123.dkr.ecr.eu-west-1.amazonaws.com/" + namespace + "/app"
	o.Spec.ServiceAccountName = account
	o.Status.ObservedGeneration = 1
	for _, option := range options {
		option(&o)
	}
	return o
}

func ready(status metav1.ConditionStatus, reason, message string) option {
	return func(o *v1alpha1.OCIRepository) {
		o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: status, Reason: reason, Message: message}}
	}
}

func refused(reason, message string) option { return ready(metav1.ConditionFalse, reason, message) }

func artifact() option {
	return func(o *v1alpha1.OCIRepository) {
		o.Status.Artifact = &v1alpha1.Artifact{Revision: "1.0.0@" + digest, URL: "http://127.0.0.1/secret-capability.tar.gz"}
	}
}

func pulled() option {
	return func(o *v1alpha1.OCIRepository) {
		artifact()(o)
		ready(metav1.ConditionTrue, meta.ReasonSucceeded, "stored artifact for revision 1.0.0@"+digest)(o)
	}
}

func as(role string) option {
	return func(o *v1alpha1.OCIRepository) {
		o.Status.Identity = &meta.Identity{
			Subject:  "system:serviceaccount:" + o.Namespace + ":" + o.Spec.ServiceAccountName,
			Provider: "aws", CloudIdentity: "arn:aws:iam::123456789123:role/" + role,
		}
	}
}

// identity sets the name of a WorkloadIdentity in the spec.
func identity(name string) option {
	return func(o *v1alpha1.OCIRepository) { o.Spec.WorkloadIdentityName = name }
}

func expect(value string) option {
	return func(o *v1alpha1.OCIRepository) { o.Annotations = map[string]string{examples.ExpectAnnotation: value} }
}

func generation(n int64) option { return func(o *v1alpha1.OCIRepository) { o.Generation = n } }
func suspended() option         { return func(o *v1alpha1.OCIRepository) { o.Spec.Suspend = true } }

// TestOf checks the Result of an object's row, and what the row's method OK returns.
func TestOf(t *testing.T) {
	trust := string(auth.CodeTrustRefused)
	for name, tc := range map[string]struct {
		options []option
		result  report.Result
		ok      bool
	}{
		"nobody has seen it":                     {result: report.Pending},
		"it is being fetched":                    {[]option{ready(metav1.ConditionUnknown, meta.ReasonProgressing, "")}, report.Pending, false},
		"pulled":                                 {[]option{pulled()}, report.Pulled, true},
		"pulled, as expected":                    {[]option{pulled(), expect("pulled")}, report.Pulled, true},
		"pulled, which should be refused":        {[]option{pulled(), expect("refused:" + trust)}, report.Pulled, false},
		"a former spec was pulled":               {[]option{pulled(), generation(2)}, report.Pending, false},
		"ready without an artifact":              {[]option{ready(metav1.ConditionTrue, meta.ReasonSucceeded, "")}, report.Pending, false},
		"refused":                                {[]option{refused(trust, "no")}, report.Refused, false},
		"refused, as expected":                   {[]option{refused(trust, "no"), expect("refused:" + trust)}, report.Refused, true},
		"refused, which should be pulled":        {[]option{refused(trust, "no"), expect("pulled")}, report.Refused, false},
		"refused for another reason":             {[]option{refused(meta.ReasonRegistryRefused, "no"), expect("refused:" + trust)}, report.Refused, false},
		"refused after it got the artifact":      {[]option{artifact(), refused(trust, "no"), expect("refused:" + trust)}, report.Refused, false},
		"refused in a former generation":         {[]option{refused(trust, "no"), expect("refused:" + trust), generation(2)}, report.Pending, false},
		"the registry is down":                   {[]option{refused(meta.ReasonRegistryUnreachable, "")}, report.Failed, false},
		"an accident is no refusal":              {[]option{refused("InternalError", ""), expect("refused:InternalError")}, report.Failed, false},
		"a lack of rights is no refusal":         {[]option{refused(meta.ReasonControllerForbidden, ""), expect("refused:ControllerForbidden")}, report.Failed, false},
		"throttling is no refusal":               {[]option{refused(string(auth.CodeThrottled), ""), expect("refused:Throttled")}, report.Failed, false},
		"suspended":                              {[]option{pulled(), suspended()}, report.Suspended, false},
		"an expectation that is none":            {[]option{pulled(), expect("Pulled")}, report.Pulled, false},
		"an expectation without a reason":        {[]option{refused(trust, "no"), expect("refused:")}, report.Refused, false},
		"an expectation of refusal for whatever": {[]option{refused(trust, "no"), expect("refused")}, report.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := repository("tenant-b", "x", "sa", tc.options...)
			row := report.Of(report.Read(kinds.All(), &o))
			if row.Result != tc.result || row.OK() != tc.ok {
				t.Errorf("is %s and as it should be: %v, want %s and %v", row.Result, row.OK(), tc.result, tc.ok)
			}
		})
	}
}

// TestBinding checks the row of a binding: first Pending, then Delivered, and then with an AWS
// identity as its subject.
func TestBinding(t *testing.T) {
	o := &identityv1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "cloudidentity", Generation: 1}}
	o.Spec.WorkloadIdentity = &identityv1.WorkloadIdentityReference{Name: "banana"}
	o.Spec.Store.SecretRef.Name = "cloudprovider"
	row := report.Of(report.Read(kinds.All(), o))
	if row.Result != report.Pending || row.Subject != "lanyard.dev:workloadidentity:tenant-a:banana" || row.Source != "Secret cloudprovider" {
		t.Errorf("%+v", row)
	}
	ends := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o.Status.ObservedGeneration, o.Status.ExpiresAt = 1, &ends
	o.Status.Conditions = []metav1.Condition{{Type: meta.ConditionReady, Status: metav1.ConditionTrue, Reason: meta.ReasonSucceeded}}
	row = report.Of(report.Read(kinds.All(), o))
	var table strings.Builder
	must.Succeed(t, report.Table(&table, []report.Row{row}, false))
	if row.Result != report.Delivered || !row.OK() || !strings.Contains(table.String(), "lwi/banana") || !strings.Contains(table.String(), "Delivered until 2026-01-02T03:04:05Z") {
		t.Errorf("%+v\n%s", row, table.String())
	}
	o.Spec.WorkloadIdentity = nil
	o.Spec.IdentityRef = &identityv1.BindingIdentityReference{Kind: identityv1.AWSClusterRoleIdentityKind, Name: "lent"}
	if row := report.Of(report.Read(kinds.All(), o)); row.Subject != "lanyard.dev:awsclusterroleidentity:lent" {
		t.Errorf("%+v", row)
	}
}

// TestRefusalsOfExamples checks the reasons that the examples expect. Each of them must count as a
// refusal.
func TestRefusalsOfExamples(t *testing.T) {
	for _, reason := range []string{
		meta.ReasonRegistryRefused, string(auth.CodeTrustRefused), string(auth.CodeSubjectNotFound),
		string(auth.CodeIdentityInvalid), string(auth.CodeEndpointRefused),
	} {
		o := repository("tenant-b", "x", "sa", refused(reason, "no"), expect("refused:"+reason))
		if row := report.Of(report.Read(kinds.All(), &o)); !row.OK() {
			t.Errorf("%s is %s", reason, row.Result)
		}
	}
}

// TestShortSubjects checks the column IDENTITY for an object without a cloud identity: "none",
// followed by the subject in parentheses.
func TestShortSubjects(t *testing.T) {
	for subject, want := range map[string]string{
		"system:serviceaccount:tenant-a:app": "none (sa/app)", "system:serviceaccount:tenant-b:app": "none (system:serviceaccount:tenant-b:app)",
		"lanyard.dev:workloadidentity:tenant-a:app": "none (lwi/app)", "lanyard.dev:ocirepository:tenant-a:app": "none (lanyard.dev:ocirepository:tenant-a:app)",
		"lanyard.dev:awsserviceaccountidentity:tenant-a:app": "none (awsserviceaccountidentity/app)",
		"lanyard.dev:awsclusterroleidentity:app":             "none (awsclusterroleidentity/app)",
		"controller":                                         "none (controller)", "secret:tenant-a:app": "none (secret:tenant-a:app)",
		"lanyard.dev:awsunknown:app": "none (lanyard.dev:awsunknown:app)", "system:serviceaccount:tenant-a:app:more": "none (system:serviceaccount:tenant-a:app:more)",
	} {
		var out bytes.Buffer
		must.Succeed(t, report.Table(&out, []report.Row{{Namespace: "tenant-a", Kind: "Bucket", Name: "app", Subject: subject}}, false))
		if !strings.Contains(out.String(), "   "+want+"   ") {
			t.Errorf("%s: want %s in\n%s", subject, want, out.String())
		}
	}
}

func TestCheckExpectation(t *testing.T) {
	for value, ok := range map[string]bool{
		"pulled": true, "refused:TrustRefused": true, "": false, "refused": false, "refused:": false, "Pulled": false, "pulled ": false,
	} {
		if err := report.CheckExpectation(value); (err == nil) != ok {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestShortRevision(t *testing.T) {
	for revision, want := range map[string]string{
		"1.0.0@" + digest: "1.0.0@3b4c0d0",
		digest:            "3b4c0d0",
		"":                "",
		"1.0.0@sha256:3b": "1.0.0@sha256:3b",
		"odd":             "odd",
	} {
		if got := report.ShortRevision(revision); got != want {
			t.Errorf("%q becomes %q, want %q", revision, got, want)
		}
	}
}

func rows() []report.Row {
	objects := []report.Object{}
	for _, o := range []v1alpha1.OCIRepository{
		repository("tenant-b", "tenant-b-repo", "tenant-b-ecr-sa", pulled(), as("tenant-b-ecr"), expect("pulled")),
		repository("tenant-b", "role-of-tenant-a", "role-of-tenant-a-sa", expect("refused:TrustRefused"),
			refused("TrustRefused", "exchange: role arn:aws:iam::123456789123:role/tenant-a-ecr does not trust the subject; let its trust policy name it")),
		repository("tenant-b", "repository-of-tenant-a", "tenant-b-ecr-sa", as("tenant-b-ecr"), expect("refused:RegistryRefused"),
			refused("RegistryUnreachable", "the registry answered 503")),
		repository("tenant-a", "tenant-a-repo", "tenant-a-ecr-sa", pulled(), as("tenant-a-ecr"), expect("pulled")),
		repository("tenant-c", "hostile", "", refused("InvalidURL", "bad\x1b[2Jtext\tand\nmore")),
		repository("tenant-c", "mistaken", "sa", pulled(), as("tenant-c"), expect("maybe")),
		repository("tenant-c", "new", "sa", generation(0)),
		repository("tenant-c", "of-the-issuer", "", identity("app"), refused("TrustRefused", "exchange: no")),
	} {
		objects = append(objects, report.Read(kinds.All(), &o))
	}
	bucket := v1alpha1.Bucket{}
	bucket.Namespace, bucket.Name = "tenant-a", "manifests"
	bucket.Spec.BucketName, bucket.Spec.Endpoint = "tenant-a", "storage.googleapis.com"
	bucket.Status.Identity = &meta.Identity{Subject: "system:serviceaccount:tenant-a:sa", Provider: "gcp", CloudIdentity: "tenant-a@my-project.iam.gserviceaccount.com"}
	bucket.Status.Artifact = &v1alpha1.Artifact{Revision: digest}
	bucket.Status.Conditions = succeeded("stored artifact for revision " + digest)
	image := v1alpha1.ImageRepository{}
	image.Namespace, image.Name, image.Spec.Image = "tenant-a", "app", "lanyard.azurecr.io/tenant-a/app"
	image.Status.Identity = &meta.Identity{Subject: "system:serviceaccount:tenant-a:sa", Provider: "azure", CloudIdentity: "72f988bf-86f1-41af-91ab-2d7cd011db47/d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"}
	image.Status.LastScanResult = &v1alpha1.ScanResult{TagCount: 3}
	image.Status.Conditions = succeeded("found 3 tags")
	image.Annotations = map[string]string{examples.ExpectAnnotation: "pulled"}
	return report.All(append(objects, report.Read(kinds.All(), &bucket), report.Read(kinds.All(), &image)))
}

func succeeded(message string) []metav1.Condition {
	return []metav1.Condition{{Type: meta.ConditionReady, Status: metav1.ConditionTrue, Reason: meta.ReasonSucceeded, Message: message}}
}

func TestShort(t *testing.T) {
	for identity, want := range map[string]string{
		"arn:aws:iam::123456789123:role/tenant-a-ecr":                                                                              "role/tenant-a-ecr",
		"72f988bf-86f1-41af-91ab-2d7cd011db47/d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08":                                                "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08",
		"tenant-a-bucket@my-org-project.iam.gserviceaccount.com":                                                                   "tenant-a-bucket@my-org-project",
		"projects/1/locations/global/workloadIdentityPools/p/providers/q/serviceAccounts/a@my-org-project.iam.gserviceaccount.com": "a@my-org-project",
		"123456789-compute@developer.gserviceaccount.com":                                                                          "123456789-compute@developer.gserviceaccount.com",
		"principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p.svc.id.goog/subject/ns/a/sa/b":         "ns/a/sa/b",
		"odd/even": "odd/even",
		"":         "",
	} {
		if got := report.Short(identity); got != want {
			t.Errorf("%q becomes %q, want %q", identity, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	for name, wide := range map[string]bool{"table": false, "wide": true} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			must.Succeed(t, report.Table(&out, rows(), wide))
			golden.Compare(t, "testdata/"+name+".golden", out.Bytes())
		})
	}
	t.Run("without expectations", func(t *testing.T) {
		var out bytes.Buffer
		o := repository("tenant-a", "plain", "sa", pulled(), as("role"))
		must.Succeed(t, report.Table(&out, []report.Row{report.Of(report.Read(kinds.All(), &o))}, false))
		if strings.Contains(out.String(), "EXPECTED") {
			t.Errorf("nothing is expected, but there is a column for it:\n%s", out.String())
		}
	})
}

// TestTableWidth checks that a tenant's text does not push other tenants' columns off the screen.
func TestTableWidth(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, value := range []string{long, report.ExpectRefused + long} {
		o := repository("tenant-c", "mistaken", "sa", pulled(), as("tenant-c"), expect(value))
		other := repository("tenant-a", "plain", "sa", pulled(), as("role"))
		var out bytes.Buffer
		must.Succeed(t, report.Table(&out, []report.Row{report.Of(report.Read(kinds.All(), &o)), report.Of(report.Read(kinds.All(), &other))}, false))
		for line := range strings.Lines(out.String()) {
			if len(line) > 300 {
				t.Errorf("a line has %d bytes", len(line))
			}
		}
	}
}

// TestCapabilityStaysInside checks that no row contains status.artifact.url: whoever knows this URL
// can read the artifact.
func TestCapabilityStaysInside(t *testing.T) {
	var out bytes.Buffer
	must.Succeed(t, report.Table(&out, rows(), true))
	if strings.Contains(out.String(), "secret-capability") {
		t.Error("the table holds status.artifact.url")
	}
}

// FuzzTable checks tables with any text of tenants and registries. A table must have one line for
// each row. It must have no characters that move the cursor or reverse text.
func FuzzTable(f *testing.F) {
	f.Add("name", "account", "reason", "message", "pulled")
	f.Add("name", "account", "reason", "txt.\u202eexe", "pulled")
	f.Add("na\nme", "a\tb", "\x1b[31m", "\u009b2J\r\n\x00\xff", "refused:x\n")
	f.Fuzz(func(t *testing.T, name, account, reason, message, expectation string) {
		o := repository("tenant", name, account, refused(reason, message), expect(expectation))
		var out bytes.Buffer
		must.Succeed(t, report.Table(&out, []report.Row{report.Of(report.Read(kinds.All(), &o)), report.Of(report.Read(kinds.All(), &o))}, true))
		if lines := strings.Count(out.String(), "\n"); lines != 3 {
			t.Errorf("%d lines, want 3:\n%q", lines, out.String())
		}
		for _, r := range strings.ReplaceAll(out.String(), "\n", "") {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("character %U in %q", r, out.String())
			}
		}
	})
}
