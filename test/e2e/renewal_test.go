package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/node"
)

const (
	// renewalIssuer is the issuer of TestRenewals.
	renewalIssuer = "https://renewals.e2e.example.com"
	// shortLife is the lifetime of TestRenewals's tokens, unless their identity sets another. A
	// token with this lifetime is renewed after 18 to 22 seconds. This is renewalFraction of the
	// lifetime, with a jitter of 10 %. The fraction is low, so that a slow machine has time to
	// renew the tokens.
	shortLife, renewalFraction = 100 * time.Second, 0.2
	// askEvery is the pause between two checks by the consumer.
	askEvery = 100 * time.Millisecond
)

// TestRenewals tests bindings with credentials for each cloud in Secrets. The credentials must be
// renewed on time and on each trigger. A consumer presents the short-lived credentials all the
// time. The consumer must never be refused, whatever happens to keys and programs.
func TestRenewals(t *testing.T) {
	beside(t, lane2)
	w := newBindingWorld(t, "renewals", renewalIssuer, map[string]any{
		"tokens": map[string]any{"minDuration": "10s", "defaultDuration": shortLife.String()},
	}, map[string]any{"identity": map[string]any{"bindings": true, "renewalFraction": renewalFraction}})
	trustIssuer(t, renewalIssuer)
	var short, lasting []*bound
	for _, target := range cloudTargets() {
		short = append(short, w.bind(t, target, "short", nil))
		lasting = append(lasting, w.bind(t, target, "lasting", &metav1.Duration{Duration: time.Hour}))
	}
	names := w.crowd(t, short)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	asking := &consumer{
		secrets: w.people, names: names, role: short[0].config["iamRoleARN"], cloud: cloudClient(), keys: caching{url: renewalIssuer, life: publishDelay},
		tokens: map[string]bool{}, kids: map[string]bool{},
	}
	running.Go(func() {
		if err := asking.run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("clients", func(t *testing.T) { clientsReadSecrets(t, w, lasting) })
	t.Run("on time", func(t *testing.T) { renewedOnTime(t, w, short) })
	t.Run("at once", func(t *testing.T) { renewedAtOnce(t, w, lasting) })
	t.Run("storm", func(t *testing.T) { renewedInStorm(t, w, names, asking) })
	stop()
	running.Wait()
	t.Logf("the consumer asked %d times, with %d tokens of %d keys; %d times AWS could not read the issuer's documents",
		asking.asked, len(asking.tokens), len(asking.kids), asking.unread)
	if asking.asked < 1000 || len(asking.tokens) < 3*len(names) || len(asking.kids) < 2 {
		t.Error("that is too little to show anything")
	}
	t.Run("key is revoked", func(t *testing.T) { renewedAfterRevocation(t, w, lasting) })
	noRightIsMissing(t, w.Cluster)
}

// cloudTarget is a cloud as the target system of identities.
type cloudTarget struct {
	kind, audience string
	// trust creates a role or account at the cloud for this subject. It returns the providerConfig.
	trust func(t *testing.T, name, subject string) map[string]string
	// judge presents a token to the cloud.
	judge func(t *testing.T, config map[string]string, token string) verdict
	// client runs the cloud's own client, which must get a credential by means of a Secret's
	// content.
	client func(t *testing.T, d delivered, config map[string]string) error
}

func cloudTargets() []cloudTarget {
	ofNode := func(script, scope string) func(*testing.T, delivered, map[string]string) error {
		return func(t *testing.T, d delivered, _ map[string]string) error {
			t.Helper()
			got := d.node(t, script, scope)
			return wantf(got.OK, "%+v", got)
		}
	}
	return []cloudTarget{
		{
			kind: v1alpha1.TargetAWS, audience: stsAudience,
			trust: func(t *testing.T, name, subject string) map[string]string {
				t.Helper()
				must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, aws.Role{Name: name, TrustPolicy: trustIn(renewalIssuer, subject)}))
				return map[string]string{"iamRoleARN": roleARN(name), "region": local.Region}
			},
			judge: func(t *testing.T, config map[string]string, token string) verdict {
				t.Helper()
				return assume(t, cloudClient(), stsURL, config["iamRoleARN"], token)
			},
			client: func(t *testing.T, d delivered, config map[string]string) error {
				t.Helper()
				out, err := d.aws(t, "sts", "get-caller-identity", "--query", "Arn", "--output", "text")
				_, role, _ := strings.Cut(config["iamRoleARN"], ":role/")
				return errors.Join(err, wantf(strings.Contains(out, ":assumed-role/"+role+"/"), "it says %q", out))
			},
		},
		{
			kind: v1alpha1.TargetAzure, audience: azureAudience,
			trust: func(t *testing.T, name, subject string) map[string]string {
				t.Helper()
				application := azure.Application{
					ClientID:             string(uuid.NewUUID()),
					FederatedCredentials: []azure.FederatedCredential{{Name: name, Issuer: renewalIssuer, Subject: subject}},
				}
				must(t, "make an application", world.Cloud().Azure().PutApplication(local.AzureTenant, application))
				return map[string]string{"clientID": application.ClientID, "tenantID": local.AzureTenant}
			},
			judge: func(t *testing.T, config map[string]string, token string) verdict {
				t.Helper()
				_, v := entraToken(t, config["clientID"], token)
				return v
			},
			client: ofNode(node.AzureIdentity, "https://storage.azure.com/.default"),
		},
		{
			kind: v1alpha1.TargetGCP, audience: "https:" + poolOf(renewalIssuer),
			trust: func(t *testing.T, name, subject string) map[string]string {
				t.Helper()
				account := name + "@" + googleProject + ".iam.gserviceaccount.com"
				must(t, "make a service account", world.Cloud().GCP().PutServiceAccount(googleProject, gcp.ServiceAccount{
					Email: account, Bindings: []gcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{principalOf(renewalIssuer, subject)}}},
				}))
				return map[string]string{"workloadIdentityProvider": strings.TrimPrefix(poolOf(renewalIssuer), "//iam.googleapis.com/"), "serviceAccountEmail": account}
			},
			judge: func(t *testing.T, config map[string]string, token string) verdict {
				t.Helper()
				exchanged, v := googleExchange(t, poolOf(renewalIssuer), token)
				if v.granted() {
					_, v = impersonate(t, config["serviceAccountEmail"], exchanged)
				}
				return v
			},
			client: ofNode(node.GoogleAuthLibrary, googleScope),
		},
		{
			kind: v1alpha1.TargetAlibaba, audience: aliyunAudience,
			trust: func(t *testing.T, name, subject string) map[string]string {
				t.Helper()
				return map[string]string{"roleARN": atAliyun(t, name, renewalIssuer, subject), "oidcProviderARN": aliyunProvider(renewalIssuer)}
			},
			judge: func(t *testing.T, config map[string]string, token string) verdict {
				t.Helper()
				return aliyunAssume(t, renewalIssuer, config["roleARN"], token)
			},
			client: ofNode(node.AlibabaCredentials, ""),
		},
	}
}

// bound is a binding. Its identity and its Secret have the same name.
type bound struct {
	cloudTarget

	name, subject string
	config        map[string]string
	files         delivered // folder in which the Secret is mounted
}

// bind creates an identity for a cloud, and a binding of this identity. Then it waits for the
// credential.
func (w *bindingWorld) bind(t *testing.T, target cloudTarget, suffix string, duration *metav1.Duration) *bound {
	t.Helper()
	b := &bound{cloudTarget: target, name: target.kind + "-" + suffix, files: delivered(t.TempDir())}
	b.subject = identitySubject(identityNamespace, b.name)
	b.config = target.trust(t, b.name, b.subject)
	must(t, "make a WorkloadIdentity", w.people.Create(t.Context(), &v1alpha1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: b.name},
		Spec: v1alpha1.WorkloadIdentitySpec{
			Audiences: []string{target.audience}, Duration: duration, SubjectFormat: v1alpha1.SubjectFormatName,
			TargetSystem: v1alpha1.TargetSystem{Type: target.kind, ProviderConfig: &runtime.RawExtension{Raw: b.providerConfig(t)}},
		},
	}))
	w.newBinding(t, b.name, b.name, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: b.name}, MountPath: string(b.files)})
	w.awaitBinding(t, b.name, isFresh)
	return b
}

func (b *bound) providerConfig(t *testing.T) []byte {
	t.Helper()
	raw, err := json.Marshal(b.config)
	must(t, "write the providerConfig", err)
	return raw
}

// crowd creates further bindings of the first identity. It returns the names of all bindings.
func (w *bindingWorld) crowd(t *testing.T, all []*bound) (names []string) {
	t.Helper()
	for _, b := range all {
		names = append(names, b.name)
	}
	for n := range 8 {
		name := fmt.Sprint("crowd-", n)
		w.newBinding(t, name, all[0].name, v1alpha1.BindingStore{SecretRef: v1alpha1.BindingSecretReference{Name: name}, Format: v1alpha1.StoreToken})
		names = append(names, name)
	}
	for _, name := range names {
		w.awaitBinding(t, name, isFresh)
	}
	return names
}

// clientsReadSecrets runs, for each binding in all, the unmodified client of the binding's cloud.
// The client must get a credential with the files from the binding's Secret.
func clientsReadSecrets(t *testing.T, w *bindingWorld, all []*bound) {
	t.Helper()
	for _, b := range all {
		newDelivered(t, string(b.files), w.secret(t, b.name).Data)
		if err := b.client(t, b.files, b.config); err != nil {
			t.Errorf("the client of %s: %v", b.kind, err)
		}
	}
}

// renewedOnTime waits until the credentials are renewed. The renewal must be at the time that the
// status has announced.
func renewedOnTime(t *testing.T, w *bindingWorld, all []*bound) {
	t.Helper()
	before := map[string]v1alpha1.WorkloadIdentityBindingStatus{}
	for _, b := range all {
		before[b.name] = w.awaitBinding(t, b.name, isFresh).Status
	}
	var late time.Duration
	for _, b := range all {
		last := before[b.name]
		o := &v1alpha1.WorkloadIdentityBinding{}
		within(t, shortLife, "the renewal of "+b.name, func(ctx context.Context) error {
			if err := w.people.Get(ctx, client.ObjectKey{Namespace: identityNamespace, Name: b.name}, o); err != nil {
				return err
			}
			return wantf(o.Status.IssuedAt.After(last.IssuedAt.Time), "%+v", o.Status)
		})
		// A token's issue time has a resolution of one second, so it may equal RenewAt.
		if issued := o.Status.IssuedAt; issued.Before(last.RenewAt) || !issued.Before(last.ExpiresAt) {
			t.Errorf("%s was issued at %s; want it between %s and %s", b.name, issued, last.RenewAt, last.ExpiresAt)
		} else {
			late = max(late, issued.Sub(last.RenewAt.Time))
		}
		wantVerdict(t, b.kind, b.judge(t, b.config, tokenIn(w.secret(t, b.name))), true)
	}
	t.Logf("no credential was renewed more than %s late", late)
}

func tokenIn(s *corev1.Secret) string { return string(s.Data[delivery.TokenKey]) }

// renewedAtOnce pulls each trigger for a renewal while the credentials still have a long life. Each
// trigger must cause a new token, which the clouds must accept.
func renewedAtOnce(t *testing.T, w *bindingWorld, all []*bound) {
	t.Helper()
	look := func(t *testing.T, b *bound) {
		t.Helper()
		w.touch(t, b.name, meta.ReconcileRequestedAnnotation, t.Name())
	}
	for _, trigger := range []struct {
		name string
		pull func(t *testing.T, b *bound)
	}{
		{"the annotation", func(t *testing.T, b *bound) {
			t.Helper()
			w.touch(t, b.name, meta.OperationAnnotation, meta.OperationRenewToken)
		}},
		{"the duration of the identity", func(t *testing.T, b *bound) {
			t.Helper()
			w.change(t, &v1alpha1.WorkloadIdentity{}, b.name, `{"duration":"2h"}`)
		}},
		{"the providerConfig of the identity", func(t *testing.T, b *bound) {
			t.Helper()
			b.config = b.trust(t, b.name+"-2", b.subject)
			w.change(t, &v1alpha1.WorkloadIdentity{}, b.name, `{"targetSystem":{"providerConfig":`+string(b.providerConfig(t))+`}}`)
		}},
		{"another identity of the name", func(t *testing.T, b *bound) {
			t.Helper()
			identity := &v1alpha1.WorkloadIdentity{}
			must(t, "read the identity", w.people.Get(t.Context(), client.ObjectKey{Namespace: identityNamespace, Name: b.name}, identity))
			must(t, "delete the identity", w.people.Delete(t.Context(), identity))
			identity.ObjectMeta = metav1.ObjectMeta{Namespace: identityNamespace, Name: b.name}
			eventually(t, "the identity is made again", func(ctx context.Context) error { return w.people.Create(ctx, identity.DeepCopy()) })
		}},
		{"the folder of the binding", func(t *testing.T, b *bound) {
			t.Helper()
			w.change(t, &v1alpha1.WorkloadIdentityBinding{}, b.name, `{"store":{"mountPath":"/secrets"}}`)
		}},
		{"a changed Secret", func(t *testing.T, b *bound) {
			t.Helper()
			s := w.secret(t, b.name)
			patchIn(t, w.people, s, func(s *corev1.Secret) { s.Data[delivery.ConfigKey] = []byte("{}") })
			look(t, b)
		}},
		{"a deleted Secret", func(t *testing.T, b *bound) {
			t.Helper()
			must(t, "delete the Secret", w.people.Delete(t.Context(), w.secret(t, b.name)))
			look(t, b)
		}},
	} {
		t.Run(trigger.name, func(t *testing.T) {
			before := map[string]string{}
			for _, b := range all {
				before[b.name] = tokenIn(w.secret(t, b.name))
				trigger.pull(t, b)
			}
			for _, b := range all {
				s := w.awaitSecret(t, b.name, func(s *corev1.Secret) error {
					token := tokenIn(s)
					return wantf(token != "" && token != before[b.name], "%s has the former token", b.name)
				})
				w.awaitBinding(t, b.name, func(o *v1alpha1.WorkloadIdentityBinding) error {
					return errors.Join(isFresh(o), wantf(o.Annotations[meta.OperationAnnotation] == "", "the request for a renewal is still there"))
				})
				wantVerdict(t, b.kind, b.judge(t, b.config, tokenIn(s)), true)
			}
		})
	}
}

// renewedInStorm renews all credentials continuously. Meanwhile the keys rotate, and each program
// is restarted.
func renewedInStorm(t *testing.T, w *bindingWorld, names []string, asking *consumer) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	defer storm.Wait()
	defer stop()
	storm.Go(func() {
		if err := w.storm(ctx, names); err != nil {
			t.Error(err)
		}
	})
	renewed := func(what string, want func(*v1alpha1.WorkloadIdentityBinding) bool) {
		t.Helper()
		for _, name := range names {
			o := &v1alpha1.WorkloadIdentityBinding{}
			within(t, shortLife, name+" after "+what, func(ctx context.Context) error {
				if err := w.people.Get(ctx, client.ObjectKey{Namespace: identityNamespace, Name: name}, o); err != nil {
					return err
				}
				return errors.Join(isFresh(o), wantf(want(o), "it was not renewed"))
			})
		}
	}
	w.awaitRing(t, "a standby", standbyReady)
	former := kidOf(w.ring(t), v1alpha1.KeyActive)
	w.keys(t, "rotate", "--timeout", "0")
	renewed("the rotation", func(o *v1alpha1.WorkloadIdentityBinding) bool { return o.Status.KID != former })
	restarted := func(program string) {
		t.Helper()
		now := time.Now()
		renewed("a restart of "+program, func(o *v1alpha1.WorkloadIdentityBinding) bool { return o.Status.IssuedAt.After(now) })
	}
	must(t, "kill the token server", w.tokenServer.Kill())
	w.restartTokenServer(t)
	restarted(tokenServer)
	must(t, "stop the identity controller", w.refresher.Stop(t.Context()))
	w.refresher = w.startReplica(t, identityController, "")
	restarted(identityController)
	asking.unpublished.Store(true)
	must(t, "kill discovery", w.discovery.Kill())
	w.discovery = w.startReplica(t, discoveryServer, "")
	asking.unpublished.Store(false)
}

// storm requests a renewal of each binding every two seconds. The bindings soon exhaust their write
// budgets, and are then renewed less often.
func (w *bindingWorld) storm(ctx context.Context, names []string) error {
	request := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.OperationAnnotation, meta.OperationRenewToken))
	for ; ctx.Err() == nil; pause(ctx, 2*time.Second) {
		for _, name := range names {
			o := &v1alpha1.WorkloadIdentityBinding{ObjectMeta: metav1.ObjectMeta{Namespace: identityNamespace, Name: name}}
			if err := w.people.Patch(ctx, o, request); err != nil && ctx.Err() == nil {
				return fmt.Errorf("ask for a renewal: %w", err)
			}
		}
	}
	return nil
}

// renewedAfterRevocation revokes the key that has signed the tokens. These tokens must be replaced
// by tokens of another key.
func renewedAfterRevocation(t *testing.T, w *bindingWorld, all []*bound) {
	t.Helper()
	revoked := w.awaitBinding(t, all[0].name, isFresh).Status.KID
	w.keys(t, "revoke", "--yes", revoked)
	for _, b := range all {
		w.awaitBinding(t, b.name, func(o *v1alpha1.WorkloadIdentityBinding) error {
			return errors.Join(isFresh(o), wantf(o.Status.KID != revoked, "the kid is that of the revoked key"))
		})
		wantVerdict(t, b.kind, b.judge(t, b.config, tokenIn(w.secret(t, b.name))), true)
	}
}

// consumer presents the tokens in Secrets to a verifier. The verifier caches the issuer's keys for
// the whole publish delay. The consumer also presents the token of the first Secret to AWS.
type consumer struct {
	secrets client.Reader
	names   []string
	role    string // the role to assume at AWS
	cloud   *http.Client
	keys    caching
	// unpublished is true while nobody serves the issuer's documents. The local cloud reads them
	// for each token, so AWS may refuse a good token during this time.
	unpublished atomic.Bool

	asked, unread int
	tokens, kids  map[string]bool
}

// run checks the tokens until ctx ends or a token is refused.
func (c *consumer) run(ctx context.Context) error {
	defer c.cloud.CloseIdleConnections()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		if err := c.ask(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("question %d: %w", c.asked, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (c *consumer) ask(ctx context.Context) error {
	var all corev1.SecretList
	if err := c.secrets.List(ctx, &all, client.InNamespace(identityNamespace), client.HasLabels{v1alpha1.ProviderLabel}); err != nil {
		return err
	}
	found := 0
	for i := range all.Items {
		s := &all.Items[i]
		if !slices.Contains(c.names, s.Name) {
			continue
		}
		found++
		if err := c.show(ctx, tokenIn(s)); err != nil {
			return fmt.Errorf("what lies in Secret %s is refused: %w", s.Name, err)
		}
		if s.Name == c.names[0] {
			if err := c.showToAWS(ctx, tokenIn(s)); err != nil {
				return fmt.Errorf("what lies in Secret %s: %w", s.Name, err)
			}
		}
	}
	return wantf(found == len(c.names), "there are %d Secrets, and should be %d", found, len(c.names))
}

// show verifies a token's signature and lifetime. It allows no clock skew.
func (c *consumer) show(ctx context.Context, token string) error {
	c.asked++
	if err := c.keys.verify(ctx, token); err != nil {
		return err
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return err
	}
	var claims jwt.Claims
	// The call above has already checked the signature.
	if err := parsed.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return err
	}
	c.tokens[token], c.kids[parsed.Headers[0].KeyID] = true, true
	return claims.ValidateWithLeeway(jwt.Expected{Issuer: renewalIssuer, Time: time.Now()}, 0)
}

func (c *consumer) showToAWS(ctx context.Context, token string) error {
	c.asked++
	unpublished := c.unpublished.Load()
	v, err := askSTS(ctx, c.cloud, stsURL, c.role, token)
	if v.code == "IDPCommunicationError" && (unpublished || c.unpublished.Load()) {
		c.unread++
		return nil
	}
	return errors.Join(err, wantf(err != nil || v.granted(), "AWS says %s: %s", v, v.message))
}
