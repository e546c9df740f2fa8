package auth_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
)

func TestSubjects(t *testing.T) {
	for name, tt := range map[string]struct {
		subject func() (auth.Subject, error)
		text    string // empty if the subject is refused
		lent    bool
	}{
		"ServiceAccount":          {func() (auth.Subject, error) { return auth.ServiceAccount("a", "sa") }, "system:serviceaccount:a:sa", false},
		"WorkloadIdentity":        {func() (auth.Subject, error) { return auth.WorkloadIdentity("a", "wi") }, "lanyard.dev:workloadidentity:a:wi", false},
		"controller":              {func() (auth.Subject, error) { return auth.Controller(), nil }, "controller", true},
		"object":                  {func() (auth.Subject, error) { return auth.Object("OCIRepository", "a", "app") }, "lanyard.dev:ocirepository:a:app", false},
		"cluster identity":        {func() (auth.Subject, error) { return auth.ClusterIdentity("AWSClusterRoleIdentity", "ops") }, "lanyard.dev:awsclusterroleidentity:ops", true},
		"object, no namespace":    {func() (auth.Subject, error) { return auth.Object("OCIRepository", "", "app") }, "", false},
		"object, no name":         {func() (auth.Subject, error) { return auth.Object("OCIRepository", "a", "") }, "", false},
		"object, no kind":         {func() (auth.Subject, error) { return auth.Object("", "a", "app") }, "", false},
		"object, colon in kind":   {func() (auth.Subject, error) { return auth.Object("a:b", "a", "app") }, "", false},
		"object as account":       {func() (auth.Subject, error) { return auth.Object(auth.KindServiceAccount, "a", "sa") }, "", false},
		"object as controller":    {func() (auth.Subject, error) { return auth.Object(auth.KindController, "a", "sa") }, "", false},
		"identity, no name":       {func() (auth.Subject, error) { return auth.ClusterIdentity("AWSClusterRoleIdentity", "") }, "", false},
		"identity, colon in name": {func() (auth.Subject, error) { return auth.ClusterIdentity("AWSClusterRoleIdentity", "a:b") }, "", false},
		"identity as controller":  {func() (auth.Subject, error) { return auth.ClusterIdentity(auth.KindController, "x") }, "", false},
		"identity as account":     {func() (auth.Subject, error) { return auth.ClusterIdentity(auth.KindServiceAccount, "x") }, "", false},
	} {
		subject, err := tt.subject()
		if tt.text == "" {
			if auth.CodeOf(err) != auth.CodeSubjectInvalid || !subject.IsZero() {
				t.Errorf("%s: %v, %v; want %s", name, subject, err, auth.CodeSubjectInvalid)
			}
			continue
		}
		if err != nil || subject.String() != tt.text || subject.Lent() != tt.lent {
			t.Errorf("%s: %v, lent %t, %v; want %s, lent %t", name, subject, subject.Lent(), err, tt.text, tt.lent)
		}
		if subject.Lent() != (subject.Namespace() == "") {
			t.Errorf("%s: lent %t, namespace %q", name, subject.Lent(), subject.Namespace())
		}
	}
	if (auth.Subject{}).Lent() {
		t.Error("nobody is lent")
	}
}

// TestAccountsByKind checks that each kind uses its own accounts, and that a kind without accounts
// is refused.
func TestAccountsByKind(t *testing.T) {
	sa, wi := serviceAccount(t, "a", "sa"), mustSubject(auth.WorkloadIdentity("a", "sa"))
	accounts, identities := newWorld(t), newWorld(t)
	identities.set(auth.Account{Subject: wi, UID: "uid-wi", Attributes: map[string]string{roleAttribute: "role-a"}})
	both := auth.AccountsByKind{auth.KindServiceAccount: accounts, auth.KindWorkloadIdentity: identities}
	for _, subject := range []auth.Subject{sa, wi} {
		if _, err := auth.GetToken(t.Context(), full{accounts}, auth.WithSubject(subject, both)); subject == sa && err != nil {
			t.Errorf("%s: %v", subject, err)
		}
	}
	if got := strings.Join(identities.steps, ", "); got != "read lanyard.dev:workloadidentity:a:sa, prove uid-wi for sts.test" {
		t.Errorf("the accounts of WorkloadIdentities were asked to %s", got)
	}
	unknown := mustSubject(auth.ClusterIdentity("Unknown", "x"))
	if _, err := auth.GetToken(t.Context(), full{accounts}, auth.WithSubject(unknown, both)); auth.CodeOf(err) != auth.CodeSubjectInvalid {
		t.Errorf("a kind that nobody set up: %v, want %s", err, auth.CodeSubjectInvalid)
	}
	var heard []auth.Subject
	subscribed := auth.AccountsByKind{auth.KindServiceAccount: teller{newWorld(t), sa}, auth.KindWorkloadIdentity: teller{newWorld(t), wi}}
	subscribed.Subscribe(func(subject auth.Subject) { heard = append(heard, subject) })
	if len(heard) != 2 {
		t.Errorf("heard of %v, want both kinds", heard)
	}
}

// teller calls each new subscriber at once, with one changed subject.
type teller struct {
	*world

	subject auth.Subject
}

func (t teller) Subscribe(changed func(auth.Subject)) { changed(t.subject) }

func mustSubject(subject auth.Subject, err error) auth.Subject {
	if err != nil {
		panic(err)
	}
	return subject
}

// subjects returns a subject of each kind that ParseSubject accepts. It leaves out a kind whose
// subjects cannot have this namespace and name.
func subjects(namespace, name string) []auth.Subject {
	all := []auth.Subject{auth.Controller()}
	add := func(subject auth.Subject, err error) {
		if err == nil {
			all = append(all, subject)
		}
	}
	add(auth.ServiceAccount(namespace, name))
	add(auth.WorkloadIdentity(namespace, name))
	for _, kind := range []auth.Kind{auth.KindOCIRepository, auth.KindImageRepository, auth.KindAWSServiceAccountIdentity} {
		add(auth.Object(kind, namespace, name))
	}
	for _, kind := range []auth.Kind{auth.KindAWSClusterControllerIdentity, auth.KindAWSClusterStaticIdentity, auth.KindAWSClusterRoleIdentity} {
		add(auth.ClusterIdentity(kind, name))
	}
	return all
}

func TestParseSubject(t *testing.T) {
	if got := subjects("a", "b.c"); len(got) != 9 {
		t.Errorf("%d subjects: %v", len(got), got)
	}
	for _, want := range subjects("a", "b.c") {
		if got, err := auth.ParseSubject(want.String()); got != want || err != nil {
			t.Errorf("%s: %s %v, %v", want, got.Kind(), got, err)
		}
	}
	for _, text := range []string{
		"", "nobody", "Controller", "controller:a", "a:b", "secret:a:b", "system:serviceaccount:", "system:serviceaccount:a", "system:serviceaccount:a:",
		"system:serviceaccount::b", "system:serviceaccount:a:b:c", "system:serviceaccount:a:B", " system:serviceaccount:a:b", "system:serviceaccounts:a:b",
		"lanyard.dev:workloadidentity:a", "lanyard.dev:workloadidentity:a:b:uid", "lanyard.dev:WorkloadIdentity:a:b", "lanyard.dev:serviceaccount:a:b",
		"lanyard.dev:controller:a", "lanyard.dev:other:a:b", "lanyard.dev:other:a", "lanyard.dev:awsother:a", "lanyard.dev::a:b",
		"lanyard.dev:ocirepository:a", "lanyard.dev:awsserviceaccountidentity:a", "lanyard.dev:awsclusterroleidentity:a:b", "lanyard.dev:awsclusterroleidentity:",
		"lanyard.dev:awsclusterroleidentity",
	} {
		if got, err := auth.ParseSubject(text); auth.CodeOf(err) != auth.CodeSubjectInvalid || !got.IsZero() {
			t.Errorf("%q: %v, %v; want %s", text, got, err, auth.CodeSubjectInvalid)
		}
	}
}

// FuzzParseSubject checks that ParseSubject is the inverse of Subject.String.
func FuzzParseSubject(f *testing.F) {
	for _, subject := range subjects("a", "b.c") {
		f.Add(subject.String(), subject.Namespace(), subject.Name())
	}
	f.Add("lanyard.dev:other:a:b", "a:b", "c:d")
	f.Fuzz(func(t *testing.T, text, namespace, name string) {
		if parsed, err := auth.ParseSubject(text); err == nil && (parsed.String() != text || parsed.IsZero()) {
			t.Errorf("%q: %s %v", text, parsed.Kind(), parsed)
		} else if err != nil && (auth.CodeOf(err) != auth.CodeSubjectInvalid || !parsed.IsZero()) {
			t.Errorf("%q: %v, %v", text, parsed, err)
		}
		for _, want := range subjects(namespace, name) {
			if parsed, err := auth.ParseSubject(want.String()); parsed != want || err != nil {
				t.Errorf("%s: %s %v, %v", want, parsed.Kind(), parsed, err)
			}
		}
	})
}
