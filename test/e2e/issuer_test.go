package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/keyring"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// ownIssuer is the issuer of TestIssuer. The local cloud serves its documents.
	ownIssuer = "https://issuer.e2e.example.com"
	// publishDelay is how long TestIssuer's keys are public before they sign. Verifiers in the
	// tests cache the public documents for the same time.
	publishDelay = 2 * time.Second
	// grantedNamespace is the namespace of a tenant for which the controller acts. In
	// otherNamespace, it does not act.
	grantedNamespace, otherNamespace = "tenant-a", "tenant-b"
)

// Names of the chart's programs for an issuer.
const (
	tokenServer        = "lanyard-token-server"
	discoveryServer    = "lanyard-discovery"
	identityController = "lanyard-identity-controller"
)

// issuerWorld is a cluster with Lanyard's own issuer: it runs the chart's programs with the chart's
// rights, and the local cloud serves the public documents.
type issuerWorld struct {
	*local.Cluster

	people client.Client // client of the administrator
	api    rest.Interface
	// tokenServer and discovery are the running programs.
	tokenServer, discovery *local.Program
}

// TestIssuer installs the chart with an issuer in a cluster of its own. Verifiers of other projects
// check its tokens. Meanwhile its keys rotate and are revoked, and its programs are killed.
func TestIssuer(t *testing.T) {
	beside(t, lane1)
	w := installIssuer(t)
	t.Run("rights", func(t *testing.T) { goldenRights(t, w.Cluster) })
	t.Run("priority", func(t *testing.T) { tokenRequestsHavePriority(t, w.Cluster) })
	t.Run("controller changes only its own", func(t *testing.T) { controllerIsHeld(t, w.Cluster) })
	t.Run("users", func(t *testing.T) { usersMintNothing(t, w.Cluster) })
	w.start(t)
	t.Run("programs", func(t *testing.T) { programsWork(t, w) })
	t.Run("key ring", func(t *testing.T) { ringIsGuarded(t, w) })
	t.Run("tokens", func(t *testing.T) { tokensAreRequested(t, w) })
	t.Run("contexts", func(t *testing.T) { contextsAreChecked(t, w) })
	t.Run("proposal", func(t *testing.T) { proposalAtClouds(t, w) })
	t.Run("objects", func(t *testing.T) { objectsAtClouds(t, w.Cluster) })
	t.Run("decryption", func(t *testing.T) { identitiesDecrypt(t, w.Cluster) })
	t.Run("credentials", func(t *testing.T) { tokensAreCredentials(t, w) })
	t.Run("verdicts", func(t *testing.T) { verdicts(t, w) })
	t.Run("jobs", func(t *testing.T) { jobsWithIdentities(t, w) })
	t.Run("rotation", func(t *testing.T) { rotationUnderLoad(t, w) })
	t.Run("revocation", func(t *testing.T) { emergencyRevocation(t, w) })
	t.Run("control plane hangs", func(t *testing.T) { controlPlaneHangs(t, w) })
	t.Run("discovery is down", func(t *testing.T) { rotationWaits(t, w) })
	t.Run("replicas", func(t *testing.T) { replicasServe(t, w) })
	noRightIsMissing(t, w.Cluster)
	t.Run("dangerous rights", func(t *testing.T) { dangerousRights(t, w) })
	t.Run("namespace", func(t *testing.T) { namespaceEnds(t, w.Cluster) })
}

// installIssuer starts the cluster and installs the chart. It does not start the chart's programs.
func installIssuer(t *testing.T) *issuerWorld {
	t.Helper()
	cluster := startCluster(t, "issuer", "", nil)
	w := &issuerWorld{Cluster: cluster, people: cluster.Client()}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	w.api = typed.CoreV1().RESTClient()
	for _, name := range []string{grantedNamespace, otherNamespace, identityNamespace, ownerNamespace, thiefNamespace} {
		w.putNamespace(t, name)
	}
	values := loudest()
	maps.Copy(values, map[string]any{
		"issuer": map[string]any{
			"url": ownIssuer, "clusterID": "prod", "claimsConfig": claimsConfig(t),
			"keys": map[string]any{"publishDelay": publishDelay.String(), "algorithms": []any{string(v1alpha1.RS256)}},
		},
		"discovery": map[string]any{"mirrorClusterIssuer": map[string]any{"url": "https://cluster.example.com"}},
		"rbac":      map[string]any{"tenantNamespaces": []any{grantedNamespace, ownerNamespace, thiefNamespace}},
		"apply":     map[string]any{"enabled": true},
	})
	must(t, "install the chart", cluster.InstallChart(t.Context(), values))
	return w
}

// start starts all programs together, because lanyard-discovery becomes ready only when the token
// server has created a key.
func (w *issuerWorld) start(t *testing.T) {
	t.Helper()
	var all []local.ProgramOptions
	for _, name := range []string{discoveryServer, tokenServer, identityController, "lanyard-controller"} {
		all = append(all, local.ProgramOptions{Workload: name, Binary: daemon(name)})
	}
	all = append(all, local.ProgramOptions{Workload: applyController, Binary: binary(applyController)})
	must(t, "start the programs", w.StartPrograms(t.Context(), all, func(p *local.Program) {
		switch p.Workload {
		case tokenServer:
			w.tokenServer = p
		case discoveryServer:
			w.discovery = p
		}
	}))
}

// startReplica starts a program under this name. The API server uses the token server that started
// last.
func (w *issuerWorld) startReplica(t *testing.T, program, name string) *local.Program {
	t.Helper()
	p, err := w.StartProgram(t.Context(), local.ProgramOptions{Workload: program, Binary: daemon(program), Name: name})
	must(t, "start "+program, err)
	return p
}

// restartTokenServer starts the token server again after it was killed. It deletes the lease, which
// would otherwise block the start until it expires.
func (w *issuerWorld) restartTokenServer(t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: tokenServer + "-" + keyring.IssuerRing}}
	typed, err := kubernetes.NewForConfig(w.Config())
	must(t, "make a client", err)
	must(t, "end the lease", typed.CoordinationV1().Leases(lease.Namespace).Delete(t.Context(), lease.Name, metav1.DeleteOptions{}))
	w.tokenServer = w.startReplica(t, tokenServer, "")
}

// noRightIsMissing fails if the logs show that a program of the chart lacks a permission.
func noRightIsMissing(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	refused := regexp.MustCompile(`User \\?"system:serviceaccount:` + local.Namespace + `:[a-z-]+\\?" cannot .*`)
	logs, err := filepath.Glob(cluster.Path("*.log"))
	must(t, "find the logs", err)
	for _, path := range logs {
		log, err := os.ReadFile(path)
		must(t, "read a log", err)
		for _, line := range refused.FindAll(log, -1) {
			t.Errorf("%s: %s", filepath.Base(path), line)
		}
	}
}

// putNamespace creates a namespace unless it exists.
func (w *issuerWorld) putNamespace(t *testing.T, name string) {
	t.Helper()
	err := w.people.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	must(t, "make a namespace", client.IgnoreAlreadyExists(err))
}

// newIdentity creates a WorkloadIdentity with these audiences.
func (w *issuerWorld) newIdentity(t *testing.T, namespace, name string, audiences ...string) *v1alpha1.WorkloadIdentity {
	t.Helper()
	identity := &v1alpha1.WorkloadIdentity{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.WorkloadIdentitySpec{Audiences: audiences, TargetSystem: v1alpha1.TargetSystem{Type: "any"}},
	}
	must(t, "make a WorkloadIdentity", w.people.Create(t.Context(), identity))
	return identity
}

// requestFor requests a token of an identity through the API server. The spec is JSON. The API
// server answers a refused request with an object of kind Status. The client must be able to decode
// this kind, because the Status has the reason.
func requestFor(ctx context.Context, api rest.Interface, identity client.ObjectKey, spec string) (string, error) {
	answer := api.Post().AbsPath(tokenPath(identity)).SetHeader("Content-Type", "application/json").Body([]byte(tokenRequest(spec))).Do(ctx)
	if err := answer.Error(); err != nil {
		return "", err
	}
	data, err := answer.Raw()
	if err != nil {
		return "", err
	}
	return readToken(data)
}

// mint acts as the administrator, and requests a token of an identity for this audience.
func (w *issuerWorld) mint(ctx context.Context, identity client.Object, audience string) (string, error) {
	return requestFor(ctx, w.api, client.ObjectKeyFromObject(identity), fmt.Sprintf(`{"audiences":[%q]}`, audience))
}

// token is like mint, but fails the test if it gets no token.
func (w *issuerWorld) token(t *testing.T, identity client.Object, audience string) string {
	t.Helper()
	minted, err := w.mint(t.Context(), identity, audience)
	must(t, "request a token", err)
	return minted
}

// command runs the program lanyard as the administrator, and returns its output.
func (w *issuerWorld) command(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	return command(t, w.Cluster, args...)
}

// keys runs `lanyard keys`. The command must succeed.
func (w *issuerWorld) keys(t *testing.T, args ...string) (out string) {
	t.Helper()
	return changeKeys(t, w.Cluster, args...)
}

// command runs the program lanyard as the administrator of a cluster, and returns its output.
func command(t *testing.T, cluster *local.Cluster, args ...string) (out string, err error) {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), binary("lanyard"), append(args, "--kubeconfig", cluster.Kubeconfig())...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("lanyard %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return string(said), err
}

// changeKeys runs `lanyard keys` for a cluster. The command must succeed.
func changeKeys(t *testing.T, cluster *local.Cluster, args ...string) (out string) {
	t.Helper()
	out, err := command(t, cluster, append([]string{"keys"}, args...)...)
	if err != nil {
		t.Fatalf("lanyard keys %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// ring returns the current KeyRing of the issuer.
func (w *issuerWorld) ring(t *testing.T) *v1alpha1.KeyRing {
	t.Helper()
	return readRing(t, w.people, keyring.IssuerRing)
}

// readRing reads the KeyRing with this name in Lanyard's namespace.
func readRing(t *testing.T, people client.Client, name string) *v1alpha1.KeyRing {
	t.Helper()
	ring := &v1alpha1.KeyRing{}
	must(t, "read the ring", people.Get(t.Context(), client.ObjectKey{Namespace: local.Namespace, Name: name}, ring))
	return ring
}

// awaitRing reads the issuer's KeyRing again and again, until want() returns nil for it.
func (w *issuerWorld) awaitRing(t *testing.T, what string, want func(*v1alpha1.KeyRing) error) {
	t.Helper()
	eventually(t, what, func(context.Context) error { return want(w.ring(t)) })
}

// kidOf returns the ID of the newest key in a state, or an empty string.
func kidOf(ring *v1alpha1.KeyRing, state v1alpha1.KeyState) string {
	for _, k := range slices.Backward(ring.Status.Keys) {
		if k.State == state {
			return k.KID
		}
	}
	return ""
}

// standbyReady asserts that a KeyRing has a key that has been public for longer than publishDelay,
// but does not sign yet.
func standbyReady(ring *v1alpha1.KeyRing) error {
	for _, k := range ring.Status.Keys {
		if k.State == v1alpha1.KeyPublished && time.Since(k.PublishedAt.Time) > publishDelay {
			return nil
		}
	}
	return fmt.Errorf("no key is ready to take over: %+v", ring.Status.Keys)
}
