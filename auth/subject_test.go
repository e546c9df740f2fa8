package auth_test

import (
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
)

func TestSubjects(t *testing.T) {
	for name, tt := range map[string]struct {
		subject func() (auth.Subject, error)
		text    string // empty: refused
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
	sa, wi := serviceAccount(t, "a", "sa"), must(auth.WorkloadIdentity("a", "sa"))
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
	unknown := must(auth.ClusterIdentity("Unknown", "x"))
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

func must(subject auth.Subject, err error) auth.Subject {
	if err != nil {
		panic(err)
	}
	return subject
}
