package identity_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/cache"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/identity/identitytest"
	"github.com/lanyard-dev/lanyard/internal/memory"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// TestChain uses a chain of two roles: static keys assume the role landing, which assumes the role
// target. Two namespaces must share one credential, and each role must cost one exchange.
func TestChain(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	landing := w.CloudRole(identitytest.Management, "landing", identitytest.Root, nil)
	w.Role("landing", identitytest.RoleSpec(landing, "root", identitytest.Admits()))
	target := w.CloudRole(identitytest.Workload, "target", landing, map[string]any{"StringEquals": map[string]string{"sts:ExternalId": "agreed"}})
	spec := identitytest.RoleSpec(target, "role/landing", identitytest.Admits("team-a", "team-b"))
	spec.ExternalID = "agreed"
	subject := w.Role("target", spec)

	first := w.MustGet("team-a", subject)
	if second := w.MustGet("team-b", subject); second != first {
		t.Error("two namespaces with the same grant have different sessions")
	}
	if first.AccountID != identitytest.Workload || first.ARN != "arn:aws:sts::"+identitytest.Workload+":assumed-role/target/target" {
		t.Errorf("account %q, %q", first.AccountID, first.ARN)
	}
	if n := w.Count("AssumeRole"); n != 2 {
		t.Errorf("%d calls of AssumeRole, want one for each role", n)
	}
	if chain, err := w.Identities.Chain(t.Context(), subject); err != nil || len(chain) != 3 || chain[2].Name() != "root" {
		t.Errorf("chain %v, %v", chain, err)
	}
}

// TestTooLarge checks that nobody may use an identity that is too large for the cache. Nobody may
// use such an identity as the source of another identity either. The cache has only a stub of such
// an identity. The stub has no spec, and must not count as a role without an ARN. A namespace whose
// labels are too large may use no identity that is lent to namespaces.
func TestTooLarge(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	landing := identitytest.RoleSpec("arn:aws:iam::111111111111:role/landing", "root", identitytest.Admits())
	w.Role("landing", landing)
	subject := w.Role("target", identitytest.RoleSpec("arn:aws:iam::222222222222:role/target", "role/landing", identitytest.Admits()))
	admitted := func(want bool) {
		t.Helper()
		if err := w.Identities.Admits(t.Context(), "team-a", subject); (err == nil) != want {
			t.Errorf("admitted: %v, want %v", err, want)
		}
	}
	labels := map[string]string{}
	for i := range 1000 {
		labels[fmt.Sprint("key-", i)] = ""
	}
	admitted(true)
	large := &v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "landing", Labels: labels}, Spec: landing}
	_, err := memory.Kept{}.Remember(large)
	must.Succeed(t, err)
	w.Put(large)
	admitted(false)
	w.Role("landing", landing)
	admitted(true)
	account, err := auth.ServiceAccount("team-a", "own")
	must.Succeed(t, err)
	w.Accounts.Put(account, "uid-own")
	own := &v1alpha1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "own", Labels: labels}}
	own.Spec.RoleARN = landing.RoleARN
	w.Put(own.DeepCopy())
	last := subject
	subject = w.Subject(v1alpha1.AWSServiceAccountIdentityKind, "team-a", "own")
	admitted(true)
	_, err = memory.Kept{}.Remember(own)
	must.Succeed(t, err)
	w.Put(own)
	admitted(false)
	subject = last
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: labels}}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	_, err = memory.Kept{Labels: true}.Remember(namespace)
	must.Succeed(t, err)
	w.Put(namespace)
	admitted(false)
	w.Namespace("team-a", nil)
	admitted(true)
}

// TestFieldsReachAWS asserts that AWS gets each field of a role identity. Cluster API Provider AWS
// (CAPA) never passed policyARNs to AWS.
func TestFieldsReachAWS(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	arn := w.CloudRole(identitytest.Workload, "target", identitytest.Root, map[string]any{"StringEquals": map[string]string{
		"sts:ExternalId": "agreed", "aws:RequestTag/company": "acme industries", "sts:SourceIdentity": "lanyard", "sts:RoleSessionName": "cluster-spinner.acme.com",
	}, "ForAnyValue:StringEquals": map[string]string{"sts:TransitiveTagKeys": "company"}})
	spec := identitytest.RoleSpec(arn, "root", identitytest.Admits("team-a"))
	spec.SessionName, spec.ExternalID, spec.SourceIdentity = "cluster-spinner.acme.com", "agreed", "lanyard"
	spec.Tags, spec.TransitiveTags = map[string]string{"company": "acme industries", "empty": ""}, []string{"company"}
	spec.PolicyARNs = []string{"arn:aws:iam::" + identitytest.Workload + ":policy/restricted"}
	spec.InlinePolicy, spec.DurationSeconds = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"}]}`, 900
	subject := w.Role("target", spec)
	token := w.MustGet("team-a", subject)
	if left := token.GetDuration(); left > 900*time.Second || left < 800*time.Second {
		t.Errorf("the session lives %s", left)
	}
	// After each change, AWS must refuse to give a session. The refusal shows that AWS got the new
	// value. It also shows that the cached session of the old value was not served.
	for name, change := range map[string]func(*v1alpha1.AWSClusterRoleIdentitySpec){
		"externalID":     func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.ExternalID = "other" },
		"tags":           func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.Tags = map[string]string{"company": "evil"} },
		"transitiveTags": func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.TransitiveTags = nil },
		"sourceIdentity": func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.SourceIdentity = "other" },
		"sessionName":    func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.SessionName = "other" },
		"policyARNs": func(s *v1alpha1.AWSClusterRoleIdentitySpec) {
			s.PolicyARNs = []string{"arn:aws:iam::" + identitytest.Workload + ":policy/missing"}
		},
		"inlinePolicy":    func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.InlinePolicy = "not JSON" },
		"durationSeconds": func(s *v1alpha1.AWSClusterRoleIdentitySpec) { s.DurationSeconds = 43201 },
	} {
		changed := *spec.DeepCopy()
		change(&changed)
		w.Role("target", changed)
		if _, _, err := w.Get("team-a", subject, auth.WithRetryNow()); err == nil {
			t.Errorf("%s: AWS gave a session, so it did not get the new value", name)
		} else if strings.Contains(err.Error(), identitytest.SecretKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChainedSessionsLiveAnHour checks how long sessions live. A session that was got with another
// session lives for at most one hour, even if the role permits more. A session that was got with
// static keys may live longer.
func TestChainedSessionsLiveAnHour(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	landing := w.CloudRole(identitytest.Management, "landing", identitytest.Root, nil)
	spec := identitytest.RoleSpec(landing, "root", identitytest.Admits())
	spec.DurationSeconds = 43200
	first := w.Role("landing", spec)
	spec = identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", landing, nil), "role/landing", identitytest.Admits())
	spec.DurationSeconds = 43200
	second := w.Role("target", spec)
	if left := w.MustGet("team-a", first).GetDuration(); left < 11*time.Hour {
		t.Errorf("a session got with keys lives %s", left)
	}
	if left := w.MustGet("team-a", second).GetDuration(); left > time.Hour {
		t.Errorf("a session got with a session lives %s", left)
	}
}

// TestRefusals asserts the errors of chains that give no credential. No such chain calls AWS.
func TestRefusals(t *testing.T) {
	const arn = "arn:aws:iam::" + identitytest.Workload + ":role/target"
	for name, c := range map[string]struct {
		set    func(w *identitytest.World) auth.Subject
		code   auth.Code
		reason string
		says   string
	}{
		"no grant": {
			func(w *identitytest.World) auth.Subject { return w.Static("root", v1alpha1.AWSClusterIdentitySpec{}) },
			auth.CodeNotGranted, meta.ReasonPrincipalUsageUnauthorized, "there is no grant",
		},
		"another namespace's grant": {
			func(w *identitytest.World) auth.Subject { return w.Static("root", identitytest.Admits("team-b")) },
			auth.CodeNotGranted, meta.ReasonPrincipalUsageUnauthorized, "the namespace is not in the list",
		},
		"a source without a grant": {
			func(w *identitytest.World) auth.Subject {
				w.Static("root", identitytest.Admits("team-b"))
				return w.Role("target", identitytest.RoleSpec(arn, "root", identitytest.Admits("team-a")))
			},
			auth.CodeNotGranted, meta.ReasonSourcePrincipalUsageUnauthorized, "AWSClusterStaticIdentity root",
		},
		"sourceOnly": {
			func(w *identitytest.World) auth.Subject {
				spec := identitytest.Admits()
				spec.SourceOnly = true
				return w.Static("root", spec)
			},
			auth.CodeNotGranted, meta.ReasonSourceOnly, "spec.sourceOnly",
		},
		"it does not exist": {
			func(w *identitytest.World) auth.Subject {
				return w.Subject(v1alpha1.AWSClusterRoleIdentityKind, "", "target")
			},
			auth.CodeSubjectNotFound, "SubjectNotFound", "does not exist",
		},
		"the controller's, and there is none": {
			func(w *identitytest.World) auth.Subject {
				return w.Subject(v1alpha1.AWSClusterControllerIdentityKind, "", "default")
			},
			auth.CodeSubjectNotFound, meta.ReasonControllerIdentityMissing, `"kind":"AWSClusterControllerIdentity"`,
		},
		"a source that does not exist": {
			func(w *identitytest.World) auth.Subject {
				return w.Role("target", identitytest.RoleSpec(arn, "root", identitytest.Admits("team-a")))
			},
			auth.CodeSubjectNotFound, "SubjectNotFound", "the source of AWSClusterRoleIdentity target",
		},
		"a source of an unknown kind": {
			func(w *identitytest.World) auth.Subject {
				w.Static("root", identitytest.Admits())
				spec := identitytest.RoleSpec(arn, "root", identitytest.Admits("team-a"))
				spec.SourceIdentityRef.Kind = "Other"
				return w.Role("target", spec)
			},
			auth.CodeSubjectNotFound, "SubjectNotFound", "Other root, the source of AWSClusterRoleIdentity target is of an unknown kind; correct spec.sourceIdentityRef.kind",
		},
		"a circle": {
			func(w *identitytest.World) auth.Subject {
				w.Role("other", identitytest.RoleSpec(arn, "role/target", identitytest.Admits()))
				return w.Role("target", identitytest.RoleSpec(arn, "role/other", identitytest.Admits()))
			},
			auth.CodeIdentityInvalid, meta.ReasonSourceCycle, "AWSClusterRoleIdentity target > AWSClusterRoleIdentity other > AWSClusterRoleIdentity target",
		},
		"its own source": {
			func(w *identitytest.World) auth.Subject {
				return w.Role("target", identitytest.RoleSpec(arn, "role/target", identitytest.Admits()))
			},
			auth.CodeIdentityInvalid, meta.ReasonSourceCycle, "circle",
		},
		"a long chain": {
			func(w *identitytest.World) auth.Subject {
				w.Static("root", identitytest.Admits())
				w.Role("link-0", identitytest.RoleSpec(arn, "root", identitytest.Admits()))
				for i := range 4 {
					w.Role(fmt.Sprint("link-", i+1), identitytest.RoleSpec(arn, fmt.Sprint("role/link-", i), identitytest.Admits()))
				}
				return w.Subject(v1alpha1.AWSClusterRoleIdentityKind, "", "link-4")
			},
			auth.CodeIdentityInvalid, meta.ReasonSourceChainTooLong, "more than 5",
		},
		"a Secret of another namespace": {
			func(w *identitytest.World) auth.Subject {
				subject := w.Static("root", identitytest.Admits())
				w.Put(&v1alpha1.AWSClusterStaticIdentity{
					ObjectMeta: metav1.ObjectMeta{Name: "root"},
					Spec: v1alpha1.AWSClusterStaticIdentitySpec{
						AWSClusterIdentitySpec: identitytest.Admits(), SecretRef: v1alpha1.AWSClusterSecretReference{Name: "keys", Namespace: "kube-system"},
					},
				})
				return subject
			},
			auth.CodeIdentityInvalid, meta.ReasonSecretNamespaceRefused, "never read",
		},
		"no Secret": {
			func(w *identitytest.World) auth.Subject {
				subject := w.Static("root", identitytest.Admits())
				w.Remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: identitytest.Secrets, Name: "keys"}})
				return subject
			},
			auth.CodeIdentityInvalid, meta.ReasonSecretRefused, "there is no Secret lanyard-identities/keys of type identity.lanyard.dev/aws-static",
		},
		"a Secret without a key": {
			func(w *identitytest.World) auth.Subject {
				subject := w.Static("root", identitytest.Admits())
				w.Secret("keys", map[string]string{"accessKeyID": identitytest.KeyID})
				return subject
			},
			auth.CodeIdentityInvalid, meta.ReasonSecretRefused, "it has no secretAccessKey",
		},
		"both spellings": {
			func(w *identitytest.World) auth.Subject {
				subject := w.Static("root", identitytest.Admits())
				w.Secret("keys", map[string]string{"accessKeyID": identitytest.KeyID, "AccessKeyID": "AKIAOTHEROTHEROTHERO", "secretAccessKey": identitytest.SecretKey})
				return subject
			},
			auth.CodeIdentityInvalid, meta.ReasonSecretRefused, "both accessKeyID and AccessKeyID",
		},
		"another namespace's ServiceAccount identity": {
			func(w *identitytest.World) auth.Subject {
				w.Put(&v1alpha1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "app"}})
				return w.Subject(v1alpha1.AWSServiceAccountIdentityKind, "team-b", "app")
			},
			auth.CodeNotGranted, meta.ReasonPrincipalUsageUnauthorized, "another namespace",
		},
		"a second identity of the program": {
			func(w *identitytest.World) auth.Subject {
				w.Put(&v1alpha1.AWSClusterControllerIdentity{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: v1alpha1.AWSClusterControllerIdentitySpec{
					AWSClusterIdentitySpec: identitytest.Admits(),
				}})
				return w.Subject(v1alpha1.AWSClusterControllerIdentityKind, "", "second")
			},
			auth.CodeSubjectNotFound, "SubjectNotFound", "AWSClusterControllerIdentity second does not exist",
		},
		"no ServiceAccount": {
			func(w *identitytest.World) auth.Subject {
				w.Put(&v1alpha1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"}})
				return w.Subject(v1alpha1.AWSServiceAccountIdentityKind, "team-a", "app")
			},
			auth.CodeSubjectNotFound, "SubjectNotFound", "ServiceAccount team-a/app",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := identitytest.New(t)
			subject := c.set(w)
			_, _, err := w.Get("team-a", subject)
			if auth.CodeOf(err) != c.code || identity.ReasonOf(err) != c.reason || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("code %s, reason %s: %v", auth.CodeOf(err), identity.ReasonOf(err), err)
			}
			if admitted := w.Identities.Admits(t.Context(), "team-a", subject); fmt.Sprint(admitted) != fmt.Sprint(err) {
				t.Errorf("Admits says %v", admitted)
			}
			if strings.Contains(fmt.Sprint(err), identitytest.SecretKey) || strings.Contains(fmt.Sprint(err), "AKIA") {
				t.Errorf("a key is in %v", err)
			}
			if calls := w.Cloud.Journal().Calls(journal.Filter{}); len(calls) > 0 {
				t.Errorf("AWS was asked: %+v", calls)
			}
		})
	}
}

// TestWithdrawnGrants asserts that a withdrawn grant stops the next use of a cached credential,
// even in a running SDK client. It tries each way to withdraw a grant.
func TestWithdrawnGrants(t *testing.T) {
	selecting := v1alpha1.AWSClusterIdentitySpec{AllowedNamespaces: &v1alpha1.AllowedNamespaces{
		Selector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]string{"team": "a"}},
	}}
	for name, take := range map[string]func(w *identitytest.World, arn string){
		"the list of the identity": func(w *identitytest.World, arn string) {
			w.Role("target", identitytest.RoleSpec(arn, "root", identitytest.Admits("nobody")))
		},
		"the list of its source": func(w *identitytest.World, _ string) { w.Static("root", identitytest.Admits("team-b")) },
		"the namespace's labels": func(w *identitytest.World, _ string) { w.Namespace("team-a", map[string]string{"team": "x"}) },
		"the namespace itself": func(w *identitytest.World, _ string) {
			gone := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
			gone.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
			w.Remove(gone)
		},
		"the identity": func(w *identitytest.World, _ string) {
			w.Remove(&v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "target"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := identitytest.New(t)
			w.Static("root", identitytest.Admits())
			arn := w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil)
			subject := w.Role("target", identitytest.RoleSpec(arn, "root", selecting))
			view := w.Identities.For("team-a")
			sdk := aws.NewCredentialsProvider(w.Provider, auth.WithSubject(subject, view), auth.WithTenant("team-a"), auth.WithCache(w.Tokens, auth.InvolvedObject{}))
			if _, err := sdk.Retrieve(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := w.Count("AssumeRole")
			if take(w, arn); w.Tokens.Len() > 1 { // all but the source's credential must be dropped
				t.Errorf("%d credentials are kept, and nobody may use them", w.Tokens.Len())
			}
			if _, err := sdk.Retrieve(t.Context()); auth.CodeOf(err) != auth.CodeNotGranted && auth.CodeOf(err) != auth.CodeSubjectNotFound {
				t.Errorf("the SDK got a credential: %v", err)
			}
			if w.Count("AssumeRole") != before {
				t.Error("AWS was asked without a grant")
			}
		})
	}
}

// TestGrantChangesTouchOneNamespace asserts what happens when one namespace loses its grant. The
// credential stays cached if another namespace may still use it. Subscribers are notified only
// about the namespace that lost its grant: no Use names another namespace.
func TestGrantChangesTouchOneNamespace(t *testing.T) {
	selecting := v1alpha1.AWSClusterIdentitySpec{AllowedNamespaces: &v1alpha1.AllowedNamespaces{
		Selector: &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceRequirement{{Key: "team", Operator: "In", Values: []string{"a", "b"}}}},
	}}
	for name, c := range map[string]struct {
		grant  v1alpha1.AWSClusterIdentitySpec // of the identity named target
		change func(w *identitytest.World, target v1alpha1.AWSClusterRoleIdentitySpec)
		uses   []string
	}{
		"the list of the identity": {
			identitytest.Admits("team-a", "team-b"),
			func(w *identitytest.World, target v1alpha1.AWSClusterRoleIdentitySpec) {
				target.AWSClusterIdentitySpec = identitytest.Admits("team-b")
				w.Role("target", target)
			},
			[]string{"target team-a"},
		},
		"the list of its source": {
			identitytest.Admits("team-a", "team-b"),
			func(w *identitytest.World, _ v1alpha1.AWSClusterRoleIdentitySpec) {
				w.Static("root", identitytest.Admits("team-b"))
			},
			[]string{"root team-a", "target team-a"},
		},
		"the namespace's labels": {
			selecting,
			func(w *identitytest.World, _ v1alpha1.AWSClusterRoleIdentitySpec) {
				w.Namespace("team-a", map[string]string{"team": "x"})
			},
			[]string{"target team-a"},
		},
	} {
		for _, per := range []string{v1alpha1.SessionPerIdentity, v1alpha1.SessionPerNamespace} {
			t.Run(name+", a session per "+per, func(t *testing.T) {
				w := identitytest.New(t)
				w.Static("root", identitytest.Admits("team-a", "team-b"))
				spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", c.grant)
				spec.SessionPer = per
				subject := w.Role("target", spec)
				w.Role("other", identitytest.RoleSpec(spec.RoleARN, "role/target", identitytest.Admits()))
				w.Role("root", spec) // a role with the same name as the static identity
				a, b := w.MustGet("team-a", subject), w.MustGet("team-b", subject)
				if (a == b) != (per == v1alpha1.SessionPerIdentity) {
					t.Fatal("the sessions are not shared as the spec says")
				}
				kept := w.Tokens.Len()
				if a != b {
					kept-- // the change below drops the credential of team-a
				}
				var uses []string
				w.Identities.SubscribeUse(func(use identity.Use) {
					if use.Identity.Name() != "other" && use.Identity != w.Subject(v1alpha1.AWSClusterRoleIdentityKind, "", "root") {
						uses = append(uses, use.Identity.Name()+" "+use.Namespace)
					}
				})
				c.change(w, spec)
				slices.Sort(uses)
				if !slices.Equal(uses, c.uses) {
					t.Errorf("the uses %q hear of it, want %q", uses, c.uses)
				}
				if n := w.Tokens.Len(); n != kept {
					t.Errorf("%d credentials are kept, want %d", n, kept)
				}
				if w.MustGet("team-b", subject) != b {
					t.Error("team-b lost its credential")
				}
				if _, _, err := w.Get("team-a", subject); auth.CodeOf(err) != auth.CodeNotGranted {
					t.Errorf("team-a: %v", err)
				}
			})
		}
	}
}

// TestRefusalThatChanges asserts that subscribers are notified when the text of a refusal changes.
// At first the role refuses the namespace. Then the role admits the namespace, but the role's
// source still refuses it.
func TestRefusalThatChanges(t *testing.T) {
	for name, change := range map[string]func(w *identitytest.World, target v1alpha1.AWSClusterRoleIdentitySpec){
		"a grant": func(w *identitytest.World, target v1alpha1.AWSClusterRoleIdentitySpec) {
			target.AWSClusterIdentitySpec = identitytest.Admits("team-a")
			w.Role("target", target)
		},
		"a label": func(w *identitytest.World, _ v1alpha1.AWSClusterRoleIdentitySpec) {
			w.Namespace("team-a", map[string]string{"team": "lessee"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := identitytest.New(t)
			w.Static("root", identitytest.Admits("team-b"))
			spec := identitytest.RoleSpec("arn:aws:iam::"+identitytest.Workload+":role/target", "root", v1alpha1.AWSClusterIdentitySpec{
				AllowedNamespaces: &v1alpha1.AllowedNamespaces{Selector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]string{"team": "lessee"}}},
			})
			subject := w.Role("target", spec)
			reason := func() string { return identity.ReasonOf(w.Identities.Admits(t.Context(), "team-a", subject)) }
			if got := reason(); got != meta.ReasonPrincipalUsageUnauthorized {
				t.Fatal(got)
			}
			var heard []identity.Use
			w.Identities.SubscribeUse(func(use identity.Use) { heard = append(heard, use) })
			if change(w, spec); reason() != meta.ReasonSourcePrincipalUsageUnauthorized {
				t.Fatal(reason())
			}
			if want := []identity.Use{{Identity: subject, Namespace: "team-a"}}; !slices.Equal(heard, want) {
				t.Errorf("heard %v, want %v", heard, want)
			}
		})
	}
}

// TestSourceLosesUsers asserts that the subscribers hear of each source of an identity whose users
// may no longer use the source. Otherwise a deleted source would stay, because nobody would count
// its users again.
func TestSourceLosesUsers(t *testing.T) {
	const role = v1alpha1.AWSClusterRoleIdentityKind
	for name, change := range map[string]func(w *identitytest.World, middle, target v1alpha1.AWSClusterRoleIdentitySpec){
		"the target is deleted": func(w *identitytest.World, _, _ v1alpha1.AWSClusterRoleIdentitySpec) {
			w.Remove(&v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "target"}})
		},
		"the identity between is deleted": func(w *identitytest.World, _, _ v1alpha1.AWSClusterRoleIdentitySpec) {
			w.Remove(&v1alpha1.AWSClusterRoleIdentity{ObjectMeta: metav1.ObjectMeta{Name: "middle"}})
		},
		"another source": func(w *identitytest.World, _, target v1alpha1.AWSClusterRoleIdentitySpec) {
			target.SourceIdentityRef.Name = "other"
			w.Role("target", target)
		},
		"a source between has another source": func(w *identitytest.World, middle, _ v1alpha1.AWSClusterRoleIdentitySpec) {
			middle.SourceIdentityRef.Name = "other"
			w.Role("middle", middle)
		},
		"no grant": func(w *identitytest.World, _, target v1alpha1.AWSClusterRoleIdentitySpec) {
			target.AWSClusterIdentitySpec = identitytest.Admits("team-b")
			w.Role("target", target)
		},
		"another label": func(w *identitytest.World, _, _ v1alpha1.AWSClusterRoleIdentitySpec) {
			w.Namespace("team-a", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := identitytest.New(t)
			w.Namespace("team-a", map[string]string{"team": "lessee"})
			w.Static("other", identitytest.Admits())
			root := w.Static("root", identitytest.Admits())
			arn := "arn:aws:iam::" + identitytest.Workload + ":role/target"
			middle := identitytest.RoleSpec(arn, "root", identitytest.Admits())
			w.Role("middle", *middle.DeepCopy())
			target := identitytest.RoleSpec(arn, "role/middle", v1alpha1.AWSClusterIdentitySpec{
				AllowedNamespaces: &v1alpha1.AllowedNamespaces{Selector: &v1alpha1.NamespaceSelector{MatchLabels: map[string]string{"team": "lessee"}}},
			})
			w.Role("target", *target.DeepCopy())
			var heard []auth.Subject
			w.Identities.SubscribeUsers(func(source auth.Subject) { heard = append(heard, source) })
			change(w, middle, target)
			if !slices.Contains(heard, root) {
				t.Errorf("heard of %v, want %s", heard, root)
			}
			if between := strings.Contains(name, "between"); slices.Contains(heard, w.Subject(role, "", "middle")) == between {
				t.Errorf("heard of %v; the users of the identity between: %v", heard, !between)
			}
			if slices.Contains(heard, w.Subject(role, "", "target")) {
				t.Errorf("heard of %v, but no identity has the target as its source", heard)
			}
		})
	}
}

// TestUseIsLogged asserts that one line of the log has the consumer and the session's name. This
// name is the same as in the cloud's audit log, even if it had to be shortened.
func TestUseIsLogged(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	long := strings.Repeat("long", 25)
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits("team-a"))
	spec.SessionPer = v1alpha1.SessionPerNamespace
	subject := w.Role(long, spec)
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}).WithValues("object", "team-a/test"))
	must.Succeed(t, w.Identities.Begin(ctx, "team-a", subject))
	arn := w.MustGet("team-a", subject).ARN
	session := arn[strings.LastIndex(arn, "/")+1:]
	if len(lines) != 1 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for _, part := range []string{`"object"="team-a/test"`, `"session"="` + session + `"`, `"identity"="AWSClusterRoleIdentity ` + long + `"`} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("%s is not in %s", part, lines[0])
		}
	}
	if err := w.Identities.Begin(ctx, "team-b", subject); auth.CodeOf(err) != auth.CodeNotGranted || len(lines) != 1 {
		t.Errorf("%v, lines %q", err, lines)
	}
}

// TestKindsOfOneName asserts that a change of an identity does not affect an identity of another
// kind with the same name.
func TestKindsOfOneName(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits())
	subject := w.Role("same", spec)
	w.Static("same", identitytest.Admits())
	first := w.MustGet("team-a", subject)
	w.Identities.SubscribeUse(func(use identity.Use) {
		if use.Identity == subject {
			t.Errorf("the role hears of a change: %+v", use)
		}
	})
	w.Static("same", identitytest.Admits("team-b"))
	w.Remove(&v1alpha1.AWSClusterStaticIdentity{ObjectMeta: metav1.ObjectMeta{Name: "same"}})
	if w.MustGet("team-a", subject) != first {
		t.Error("the role lost its credential")
	}
}

// TestChangedRole changes the role of an identity. After the change, nobody may get a credential of
// the old role. This includes an SDK client that has the old credential.
func TestChangedRole(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	subject := w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "old", identitytest.Root, nil), "root", identitytest.Admits()))
	view := w.Identities.For("team-a")
	sdk := aws.NewCredentialsProvider(w.Provider, auth.WithSubject(subject, view), auth.WithTenant("team-a"), auth.WithCache(w.Tokens, auth.InvolvedObject{}))
	old, err := sdk.Retrieve(t.Context())
	must.Succeed(t, err)
	w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "new", identitytest.Root, nil), "root", identitytest.Admits()))
	if next, err := sdk.Retrieve(t.Context()); err != nil || next.AccessKeyID == old.AccessKeyID {
		t.Errorf("the SDK has the old role's credential, %v", err)
	}
	if token := w.MustGet("team-a", subject); !strings.Contains(token.ARN, "/new/") {
		t.Errorf("the session is of %s", token.ARN)
	}
}

// TestUnknownNamespace asserts that no grant admits a namespace that does not exist: neither the
// grant {}, nor a list with the namespace's name.
func TestUnknownNamespace(t *testing.T) {
	for name, grant := range map[string]v1alpha1.AWSClusterIdentitySpec{
		"every namespace": identitytest.Admits(),
		"a list":          identitytest.Admits("gone"),
		"a selector": {AllowedNamespaces: &v1alpha1.AllowedNamespaces{Selector: &v1alpha1.NamespaceSelector{
			MatchExpressions: []v1alpha1.NamespaceRequirement{{Key: "team", Operator: "NotIn", Values: []string{"x"}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := identitytest.New(t)
			subject := w.Static("root", grant)
			if _, _, err := w.Get("gone", subject); auth.CodeOf(err) != auth.CodeNotGranted || !strings.Contains(err.Error(), "there is no such namespace") {
				t.Errorf("%v", err)
			}
			w.Namespace("gone", nil)
			if _, _, err := w.Get("gone", subject); err != nil {
				t.Errorf("once it exists: %v", err)
			}
		})
	}
}

// TestBeforeMemoryIsComplete asserts that refusals are only temporary errors until all watches have
// synced. Until then, memory may lack an identity or a grant that exists. After the watches have
// synced, the refusals are final.
func TestBeforeMemoryIsComplete(t *testing.T) {
	w := identitytest.Starting(t)
	subject := w.Subject(v1alpha1.AWSClusterStaticIdentityKind, "", "root")
	refused := func(when string) {
		t.Helper()
		_, _, got := w.Get("team-a", subject)
		_, chain := w.Identities.Chain(t.Context(), subject)
		_, dependents := w.Identities.Dependents(subject)
		for _, err := range []error{got, chain, dependents, w.Identities.Admits(t.Context(), "team-a", subject)} {
			if err != nil && (!auth.IsTemporary(err) || identity.IsUsageRefused(err) || identity.ReasonOf(err) != "") {
				t.Errorf("%s: %v", when, err)
			}
		}
		if got == nil || dependents == nil {
			t.Errorf("%s: an answer before all is known", when)
		}
	}
	refused("nothing is known")
	w.Static("root", identitytest.Admits("team-a"))
	refused("the namespaces are not known")
	w.Namespace("team-a", nil)
	if _, _, err := w.Get("team-a", subject); err != nil {
		t.Errorf("all that admits is known: %v", err)
	}
	w.Sync()
	if _, _, err := w.Get("team-b", subject); auth.CodeOf(err) != auth.CodeNotGranted {
		t.Errorf("%v", err)
	}
}

// TestUnknownKindOfSource makes a role whose source has an unknown kind. The role must depend on
// each identity that the source could refer to, and on no other identity.
func TestUnknownKindOfSource(t *testing.T) {
	for _, kind := range []string{"Other", "wrong:kind", ""} {
		w := identitytest.New(t)
		spec := identitytest.RoleSpec("arn", "root", identitytest.Admits())
		spec.SourceIdentityRef.Kind = kind
		target := w.Role("target", spec)
		user := w.Role("user", identitytest.RoleSpec("arn", "role/target", identitytest.Admits()))
		for _, source := range []auth.Subject{
			w.Static("root", identitytest.Admits()),
			w.Subject(v1alpha1.AWSClusterControllerIdentityKind, "", "root"), w.Subject(v1alpha1.AWSClusterRoleIdentityKind, "", "root"),
		} {
			if got, err := w.Identities.Dependents(source); err != nil || !slices.Contains(got, target) || !slices.Contains(got, user) {
				t.Errorf("%q: dependents of %s: %v, %v", kind, source, got, err)
			}
			if got := w.Identities.Needs(user); !slices.Contains(got, source) {
				t.Errorf("%q: %s needs %v, not %s", kind, user, got, source)
			}
		}
		if got, err := w.Identities.Dependents(w.Static("other", identitytest.Admits())); err != nil || len(got) != 1 {
			t.Errorf("%q: dependents of another name: %v, %v", kind, got, err)
		}
	}
}

// TestSharedExchangeNamesNoConsumer withdraws the grant of a namespace while its exchange runs.
// Other namespaces may wait for the same exchange, so the error must not name this namespace.
func TestSharedExchangeNamesNoConsumer(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits("team-a", "team-b"))
	subject := w.Role("target", spec)
	view := w.Identities.For("team-a")
	account, err := view.Read(t.Context(), subject)
	must.Succeed(t, err)
	spec.AWSClusterIdentitySpec = identitytest.Admits("team-b")
	w.Role("target", spec)
	_, read := view.Read(t.Context(), subject)
	_, proved := view.Prove(t.Context(), account, auth.ProofRequest{})
	for _, err := range []error{read, proved} {
		if auth.CodeOf(err) != auth.CodeSubjectReplaced || strings.Contains(err.Error(), "team-a") {
			t.Errorf("%v", err)
		}
	}
	if _, err := view.Lookup(t.Context(), subject); auth.CodeOf(err) != auth.CodeNotGranted || !strings.Contains(err.Error(), "team-a") {
		t.Errorf("its own answer: %v", err)
	}
}

// TestRotatedKeys asserts that a change of the Secret affects every chain at once. In Cluster API
// Provider AWS (CAPA), the change reached only the controller that reconciled first.
func TestRotatedKeys(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	subject := w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits()))
	first := w.MustGet("team-a", subject)
	const newID, newSecret = "AKIANEWNEWNEWNEWNEWN", "new-secret-new-secret!"
	everything := identitytest.Policy(map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"})
	err := w.Cloud.AWS().PutUser(identitytest.Management, cloudaws.User{
		Name: "root", AccessKeys: []cloudaws.AccessKey{{ID: newID, Secret: newSecret}}, Policies: map[string]json.RawMessage{"all": everything},
	})
	must.Succeed(t, err)
	w.Secret("keys", map[string]string{"AccessKeyID": newID, "SecretAccessKey": newSecret}) // the other spelling of the Secret's keys
	if second := w.MustGet("team-a", subject); second == first {
		t.Error("the session of the old keys is still served")
	}
	// A second write of the same keys is no change.
	third := w.MustGet("team-a", subject)
	w.Secret("keys", map[string]string{"accessKeyID": newID, "secretAccessKey": newSecret})
	if fourth := w.MustGet("team-a", subject); fourth != third {
		t.Error("equal keys cost an exchange")
	}
}

// TestSourceThatEnds asserts that a chain uses the current session of its source and not a copy. In
// Cluster API Provider AWS (CAPA), a chain failed for ever once the session of its source had
// ended.
func TestSourceThatEnds(t *testing.T) {
	tokens := cache.New(cache.Options{MaxDuration: 200 * time.Millisecond})
	w := identitytest.New(t, func(o *identity.Options) { o.Cache = tokens })
	w.Tokens = tokens
	w.Static("root", identitytest.Admits())
	landing := w.CloudRole(identitytest.Management, "landing", identitytest.Root, nil)
	w.Role("landing", identitytest.RoleSpec(landing, "root", identitytest.Admits()))
	subject := w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", landing, nil), "role/landing", identitytest.Admits()))
	for range 3 {
		w.MustGet("team-a", subject)
		<-time.After(250 * time.Millisecond)
	}
	if n := w.Count("AssumeRole"); n != 6 {
		t.Errorf("%d calls of AssumeRole, want two for each of three lives", n)
	}
}

// TestIdentitiesNeverShare asserts that two identities never share a session. A new label or status
// must not cost an exchange. Cluster API Provider AWS (CAPA) got both wrong. Its key of a session
// left out the identity, and its hash of an identity changed with the metadata.
func TestIdentitiesNeverShare(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	one := w.Role("one", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "one", identitytest.Root, nil), "root", identitytest.Admits()))
	two := w.Role("two", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "one", identitytest.Root, nil), "root", identitytest.Admits()))
	first, second := w.MustGet("team-a", one), w.MustGet("team-a", two)
	if first == second {
		t.Error("two identities share a session")
	}
	o := &v1alpha1.AWSClusterRoleIdentity{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"a": "b", "c": "d", "e": "f"}, ResourceVersion: "7"},
		Spec:       identitytest.RoleSpec("arn:aws:iam::"+identitytest.Workload+":role/one", "root", identitytest.Admits()),
		Status:     v1alpha1.AWSIdentityStatus{UsedBy: 3},
	}
	w.Put(o)
	if again := w.MustGet("team-a", one); again != first {
		t.Error("a label cost an exchange")
	}
	// A new identity does not get the session of a deleted identity with the same name.
	w.Remove(o)
	o = o.DeepCopy()
	o.UID = "another"
	w.Put(o)
	if again := w.MustGet("team-a", one); again == first {
		t.Error("a new identity has the old one's session")
	}
}

// TestSessionPerNamespace asserts that each namespace has its own session, with the namespace in
// the session's name.
func TestSessionPerNamespace(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	spec := identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits())
	spec.SessionPer = v1alpha1.SessionPerNamespace
	subject := w.Role("target", spec)
	a, b := w.MustGet("team-a", subject), w.MustGet("team-b", subject)
	if a == b || !strings.HasSuffix(a.ARN, "/target@team-a") || !strings.HasSuffix(b.ARN, "/target@team-b") {
		t.Errorf("%s and %s", a.ARN, b.ARN)
	}
	if again := w.MustGet("team-a", subject); again != a {
		t.Error("the session of a namespace is not kept")
	}
}

// TestServiceAccountIdentity asserts that AssumeRoleWithWebIdentity gets the policies, duration,
// session name and audiences. A new ServiceAccount of the same name does not get the old session.
func TestServiceAccountIdentity(t *testing.T) {
	w := identitytest.New(t)
	account, err := auth.ServiceAccount("team-a", "app")
	must.Succeed(t, err)
	w.Accounts.Put(account, "uid-1")
	host := strings.TrimPrefix(identitytest.IssuerURL, "https://")
	err = w.Cloud.AWS().PutRole(identitytest.Management, cloudaws.Role{Name: "app", TrustPolicy: identitytest.Policy(map[string]any{
		"Effect": "Allow", "Principal": map[string]string{"Federated": "arn:aws:iam::" + identitytest.Management + ":oidc-provider/" + host},
		"Action": "sts:AssumeRoleWithWebIdentity",
		"Condition": map[string]any{"StringEquals": map[string]string{
			host + ":sub": account.String(), host + ":aud": "custom", "sts:RoleSessionName": "the-app",
		}},
	})})
	must.Succeed(t, err)
	spec := v1alpha1.AWSServiceAccountIdentitySpec{
		AWSRoleSpec: v1alpha1.AWSRoleSpec{RoleARN: "arn:aws:iam::" + identitytest.Management + ":role/app", SessionName: "the-app", DurationSeconds: 900},
		Audiences:   []string{"custom"}, ExpirationSeconds: 1200,
	}
	w.Put(&v1alpha1.AWSServiceAccountIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"},
		Spec:       spec,
	})
	subject := w.Subject(v1alpha1.AWSServiceAccountIdentityKind, "team-a", "app")
	first := w.MustGet("team-a", subject)
	if first.AccountID != identitytest.Management || first.GetDuration() > 900*time.Second {
		t.Errorf("%s for %s", first.ARN, first.GetDuration())
	}
	if asked := w.Accounts.Asked[0]; len(asked.Audiences) != 1 || asked.Audiences[0] != "custom" || asked.Lifetime != 1200*time.Second {
		t.Errorf("asked for %+v", asked)
	}
	w.Accounts.Put(account, "uid-2")
	if second := w.MustGet("team-a", subject); second == first {
		t.Error("a new ServiceAccount has the old one's session")
	}
	// AWS must refuse each of these values. The refusal shows that the field reaches AWS.
	for name, change := range map[string]func(*v1alpha1.AWSServiceAccountIdentitySpec){
		"sessionName":  func(s *v1alpha1.AWSServiceAccountIdentitySpec) { s.SessionName = "other" },
		"inlinePolicy": func(s *v1alpha1.AWSServiceAccountIdentitySpec) { s.InlinePolicy = "not JSON" },
		"policyARNs": func(s *v1alpha1.AWSServiceAccountIdentitySpec) {
			s.PolicyARNs = []string{"arn:aws:iam::" + identitytest.Management + ":policy/missing"}
		},
		"durationSeconds": func(s *v1alpha1.AWSServiceAccountIdentitySpec) { s.DurationSeconds = 43201 },
	} {
		changed := *spec.DeepCopy()
		change(&changed)
		w.Put(&v1alpha1.AWSServiceAccountIdentity{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "app"}, Spec: changed})
		if _, _, err := w.Get("team-a", subject, auth.WithRetryNow()); err == nil {
			t.Errorf("%s: AWS gave a session, so it did not get the new value", name)
		}
	}
}

// TestRoleThatComesLater asserts that an identity works as soon as its role exists. Before that,
// AWS refuses the role, and 100 uses of the identity make one call.
func TestRoleThatComesLater(t *testing.T) {
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	subject := w.Role("target", identitytest.RoleSpec("arn:aws:iam::"+identitytest.Workload+":role/target", "root", identitytest.Admits()))
	for range 100 {
		if _, _, err := w.Get("team-a", subject); auth.CodeOf(err) != auth.CodeTrustRefused || !strings.Contains(err.Error(), "sts:AssumeRole to "+identitytest.Root) {
			t.Fatal(err)
		}
	}
	if n := w.Count("AssumeRole"); n != 1 {
		t.Errorf("%d calls of AssumeRole for a role that does not exist", n)
	}
	w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil)
	<-time.After(1100 * time.Millisecond) // the failure is cached for a second
	w.MustGet("team-a", subject)
}

// TestThrottledSTS asserts that many uses make few calls while AWS throttles. Afterwards the
// identity works without a restart.
func TestThrottledSTS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := identitytest.New(t)
		w.Static("root", identitytest.Admits())
		subject := w.Role("target", identitytest.RoleSpec(w.CloudRole(identitytest.Workload, "target", identitytest.Root, nil), "root", identitytest.Admits()))
		id, err := w.Cloud.Faults().Add(fault.Fault{Service: "sts", Kind: fault.Throttle})
		must.Succeed(t, err)
		for range 1000 {
			if _, _, err := w.Get("team-a", subject); auth.CodeOf(err) != auth.CodeThrottled {
				t.Fatal(err)
			}
		}
		if calls := len(w.Cloud.Journal().Calls(journal.Filter{Service: "sts"})); calls > 3 {
			t.Errorf("%d calls for 1000 uses", calls)
		}
		w.Cloud.Faults().Remove(id)
		time.Sleep(2 * time.Minute)
		w.MustGet("team-a", subject)
	})
}

// TestManyClusters asserts that 10,000 uses of 200 identities cost one exchange for each identity.
func TestManyClusters(t *testing.T) {
	const roles, uses = 200, 50
	w := identitytest.New(t)
	w.Static("root", identitytest.Admits())
	var subjects []auth.Subject
	for i := range roles {
		name := fmt.Sprint("role-", i)
		subjects = append(subjects, w.Role(name, identitytest.RoleSpec(w.CloudRole(identitytest.Workload, name, identitytest.Root, nil), "root", identitytest.Admits())))
	}
	for i := range 10 {
		w.Namespace(fmt.Sprint("team-", i), nil)
	}
	var wg sync.WaitGroup
	for i := range uses {
		wg.Go(func() {
			for _, subject := range subjects {
				if _, _, err := w.Get(fmt.Sprint("team-", i%10), subject); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := w.Count("AssumeRole"); n != roles {
		t.Errorf("%d calls of AssumeRole, want %d", n, roles)
	}
	if n := w.Count("GetCallerIdentity"); n != 1 {
		t.Errorf("%d calls of GetCallerIdentity, want 1 for the root", n)
	}
}
