package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
)

// The identities of the demonstration's tenants at Azure, Google Cloud and AWS.
const (
	applicationA = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	applicationB = "4a7272f9-f186-41af-9f84-6a92e32d7cd0"
	accountA     = "tenant-a-bucket@" + googleProject + ".iam.gserviceaccount.com"
	accountB     = "tenant-b-bucket@" + googleProject + ".iam.gserviceaccount.com"
)

var (
	roleA = roleARN("tenant-a-ecr")
	roleB = roleARN("tenant-b-ecr")
)

// partnerRole is a role in another account. Tenant A's own role assumes it.
const (
	partnerRole    = "arn:aws:iam::210987654321:role/tenant-a-partner"
	partnerSession = "arn:aws:sts::210987654321:assumed-role/tenant-a-partner/tenant-a-partner-sa.tenant-a"
)

// asWhom has the provider, the ServiceAccount and the cloud identity of each object whose fetch
// must succeed. Without a cloud identity, the object acts at the cloud as the ServiceAccount
// itself.
var asWhom = map[string]struct{ provider, account, identity string }{
	"tenant-a-repo": {"aws", "tenant-a-ecr-sa", roleA},
	"tenant-b-repo": {"aws", "tenant-b-ecr-sa", roleB},

	"tenant-a-app-by-partner": {"aws", "tenant-a-partner-sa", partnerRole},

	"tenant-a-acr":    {"azure", "tenant-a-acr-sa", local.AzureTenant + "/" + applicationA},
	"tenant-b-acr":    {"azure", "tenant-b-acr-sa", local.AzureTenant + "/" + applicationB},
	"tenant-b-app":    {"azure", "tenant-b-acr-sa", local.AzureTenant + "/" + applicationB},
	"tenant-a-bucket": {"gcp", "tenant-a-gcs-sa", accountA},
	"tenant-b-bucket": {"gcp", "tenant-b-gcs-sa", accountB},
	"tenant-a-direct": {"gcp", "tenant-a-direct-sa", ""},
}

// fixes has, for each object that must be refused, the words that the object's message must
// contain. They say what to do and where.
var fixes = map[string][]string{
	"repository-of-tenant-a":      {roleB, "tenant-a/app", "ecr:BatchGetImage"},
	"role-of-tenant-a":            {roleA, "system:serviceaccount:tenant-b:role-of-tenant-a-sa", "trust policy"},
	"partner-of-tenant-a":         {partnerRole, "assumed-role/tenant-b-chain", "trust policy"},
	"missing-account":             {"create ServiceAccount tenant-b/tenant-a-ecr-sa"},
	"malformed-role":              {roleAnnotation, "tenant-b/malformed-role-sa", "twelve digits"},
	"registry-lookalike":          {"amazonaws.com.evil.example", "<account>.dkr.ecr.<region>.amazonaws.com/<repository>"},
	"metadata-service":            {"169.254.169.254", "of a metadata service", "--allowed-endpoint-hosts"},
	"acr-of-tenant-a":             {applicationB, "lanyarddemo", "tenant-a/app", "Container Registry Repository Reader"},
	"application-of-tenant-a":     {applicationA, "AADSTS700213", local.Issuer, "subject system:serviceaccount:tenant-b:application-of-tenant-a-sa", azureAudience},
	"bucket-of-tenant-a":          {accountB, "bucket tenant-a-manifests", "storage.googleapis.com", "roles/storage.objectViewer"},
	"service-account-of-tenant-a": {accountA, "roles/iam.workloadIdentityUser", googlePrincipal("tenant-b", "service-account-of-tenant-a-sa")},
	"direct-bucket-of-tenant-a":   {"system:serviceaccount:tenant-b:tenant-a-direct-sa", "bucket tenant-a-direct", "roles/storage.objectViewer"},
}

// dataHost is the host from which layers of the demonstration's registry at Azure are read.
const dataHost = "lanyarddemo.westeurope.data.azurecr.io"

// TestStory tests Stories 1, 3 and 5 of Flux RFC-0010, and a similar story at Azure. It also tests
// attempts of tenant B, which must be refused. It applies the repository's examples/ without the
// objects that need Lanyard's own issuer; TestPages covers those.
func TestStory(t *testing.T) {
	alone(t, "it waits for all objects of the world, and compares them with what lanyard status -A prints")
	begin := world.Cloud().Journal().Last()
	artifacts, err := examples.Artifacts()
	must(t, "read the artifacts", err)
	_, err = world.Cloud().PushAll(t.Context(), artifacts, "1.0.0")
	must(t, "publish the artifacts", err)
	manifests, err := local.ReadManifests(t.Context(), "", examples.WithoutIssuer())
	must(t, "read the examples", err)
	_, err = world.Apply(t.Context(), manifests)
	must(t, "apply the examples", err)
	_, err = world.Settle(t.Context(), nil)
	must(t, "wait for the examples", err)
	// Reconcile each object once more: refused objects must stay refused.
	rows, err := world.Confirm(t.Context())
	must(t, "wait for the examples", err)
	t.Cleanup(func() { (&tenant{namespace: "tenant-a"}).remove(t); (&tenant{namespace: "tenant-b"}).remove(t) })

	for _, row := range rows {
		if !row.OK() {
			t.Errorf("%s/%s: want %s, it is %s %s: %s", row.Namespace, row.Name, row.Expected, row.Result, row.Reason, row.Message)
		}
		words, refused := fixes[row.Name]
		if _, fetched := asWhom[row.Name]; fetched == refused {
			t.Errorf("these tests do not know what must come of %s %s/%s", row.Kind, row.Namespace, row.Name)
		}
		for _, word := range words {
			if !strings.Contains(row.Message, word) {
				t.Errorf("the message of %s does not say %q: %s", row.Name, word, row.Message)
			}
		}
	}
	if len(rows) != len(asWhom)+len(fixes) {
		t.Errorf("there are %d rows; want %d", len(rows), len(asWhom)+len(fixes))
	}

	t.Run("lanyard status", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), binary("lanyard"), "status", "-A", "-o", "json", "--kubeconfig", viewer(t))
		out, err := cmd.Output()
		must(t, "lanyard status", err)
		var shown []report.Row
		must(t, "read what lanyard status prints", json.Unmarshal(out, &shown))
		if !reflect.DeepEqual(shown, rows) {
			t.Errorf("lanyard status prints %+v; want %+v", shown, rows)
		}
	})
	t.Run("lanyard explain", func(t *testing.T) {
		account := viewer(t)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-viewer-of-accounts"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "viewer"}},
		}
		create(t, binding)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), binding) })
		type diagnosis struct{ Subject, Key, Digest, Changed, Refusal, NextStep string }
		explain := func(namespace, word string) (d diagnosis) {
			out, err := exec.CommandContext(t.Context(), binary("lanyard"), "explain", word, "-n", namespace, "-o", "json", "--kubeconfig", account).Output()
			must(t, "lanyard explain", err)
			must(t, "read what lanyard explain prints", json.Unmarshal(out, &d))
			return d
		}
		good := explain("tenant-a", "ocirepository/tenant-a-repo")
		if good.Subject != "system:serviceaccount:tenant-a:tenant-a-ecr-sa" || !strings.Contains(good.Key, "cloudProviderIdentity="+roleA) ||
			good.Changed != "" || good.NextStep != "nothing to do" {
			t.Errorf("of an object that is fetched it prints %+v", good)
		}
		refused := explain("tenant-b", "ocirepository/missing-account")
		if refused.Refusal == "" || refused.Key != "" || refused.NextStep != fixes["missing-account"][0] {
			t.Errorf("of an object that is refused it prints %+v", refused)
		}
		// The command and the controller compute the same cache key, so the controller's log has
		// the key's digest.
		distrusted := explain("tenant-b", "ocirepository/role-of-tenant-a")
		if distrusted.Digest == "" || !slices.ContainsFunc(controllerLogs(t), func(path string) bool {
			text, err := os.ReadFile(path)
			must(t, "read a log", err)
			return strings.Contains(string(text), distrusted.Digest)
		}) {
			t.Errorf("no log has the digest of %+v", distrusted)
		}
	})
	t.Run("artifacts", func(t *testing.T) {
		checked, err := world.CheckArtifacts(t.Context())
		if must(t, "fetch the artifacts", err); checked == 0 {
			t.Error("there is none")
		}
	})
	t.Run("identity", func(t *testing.T) {
		all, err := report.List(t.Context(), objects, kinds.All(), "")
		must(t, "list the objects", err)
		for _, o := range all {
			want, fetched := asWhom[o.GetName()]
			if !fetched {
				continue
			}
			subject := "system:serviceaccount:" + o.GetNamespace() + ":" + want.account
			if id := o.Used(); id == nil || id.Subject != subject || id.Provider != want.provider || id.CloudIdentity != want.identity {
				t.Errorf("status.identity of %s is %+v; want %s as %q", o.GetName(), id, subject, want.identity)
			}
		}
	})
	t.Run("journal", func(t *testing.T) { judgeStory(t, world.Cloud().Journal().Calls(journal.Filter{After: begin})) })
	t.Run("no secrets", func(t *testing.T) { wantNoSecrets(t) })
}

// judgeStory checks the calls that the clouds recorded while the examples ran.
func judgeStory(t *testing.T, calls []journal.Call) {
	t.Helper()
	// owners has the subjects that may use each identity. readers has the callers that may read
	// each tenant's content.
	const subjects = "system:serviceaccount:"
	owners := map[string][]string{
		roleARN("tenant-a-chain"): {subjects + "tenant-a:tenant-a-partner-sa"},

		roleA:        {subjects + "tenant-a:tenant-a-ecr-sa"},
		roleB:        {subjects + "tenant-b:tenant-b-ecr-sa"},
		applicationA: {subjects + "tenant-a:tenant-a-acr-sa"},
		applicationB: {subjects + "tenant-b:tenant-b-acr-sa"},
		accountA:     {googlePrincipal("tenant-a", "tenant-a-gcs-sa")},
		accountB:     {googlePrincipal("tenant-b", "tenant-b-gcs-sa")},
	}
	session := func(role string) string { return "arn:aws:sts::" + local.Account + ":assumed-role/" + role + "/" }
	readers := map[string][]string{
		"tenant-a": {session("tenant-a-ecr"), partnerSession, applicationA + "@", "serviceAccount:" + accountA, googlePrincipal("tenant-a", "tenant-a-direct-sa")},
		"tenant-b": {session("tenant-b-ecr"), applicationB + "@", "serviceAccount:" + accountB},
	}
	granted, refused, read, sessions := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	layers := map[string]int{}
	for _, call := range calls {
		if call.Host == dataHost {
			// The registry gives the controller a signed link to each layer at the data endpoint.
			// The data endpoint refuses a request that has another credential besides the link. The
			// controller must send no other credential, so no call may be refused.
			if !call.Granted() {
				t.Errorf("the registry's data endpoint refused: %+v", call)
			}
			layers[call.Resource]++
			continue
		}
		if owner, known := owners[call.Role]; known {
			// Calls to AWS and Entra have the subject of the ServiceAccount token. Calls to IAM
			// Credentials have the principal of Google's token.
			asking := call.Subject
			if call.Service == "iamcredentials" {
				asking = call.Principal
			}
			switch {
			case !call.Granted():
				refused[call.Role+" "+call.Code]++
			case !slices.Contains(owner, asking):
				t.Errorf("%s was granted %s: %+v", asking, call.Role, call)
			default:
				granted[call.Role]++
			}
		}
		for tenant, principals := range readers {
			theirs := strings.Contains(call.Resource, tenant+"/app") || strings.Contains(call.Resource, "/buckets/"+tenant+"-")
			if !theirs || !call.Granted() || strings.HasSuffix(call.Principal, ":user/"+local.Publisher) {
				continue
			}
			i := slices.IndexFunc(principals, func(p string) bool { return strings.HasPrefix(call.Principal, p) })
			if i < 0 {
				t.Errorf("%q got at what is %s's: %+v", call.Principal, tenant, call)
				continue
			}
			read[principals[i]]++
		}
		if call.Granted() && call.Service == "sts" && call.Subject != "" {
			sessions[call.Subject]++
		}
		for _, host := range []string{registryHost + ".evil.example", "169.254.169.254"} {
			if strings.HasPrefix(call.Host, host) {
				t.Errorf("host %s, which the controller must refuse itself, was called: %+v", host, call)
			}
		}
	}
	for identity := range owners {
		if granted[identity] == 0 {
			t.Errorf("nobody was ever granted %s: the journal is not read right", identity)
		}
	}
	for _, principals := range readers {
		for _, p := range principals {
			if read[p] == 0 {
				t.Errorf("%s never read what is its own: the journal is not read right", p)
			}
		}
	}
	for tenant := range readers {
		if repository := "lanyarddemo.azurecr.io/" + tenant + "/app"; layers[repository] == 0 {
			t.Errorf("no layer of %s was read at the registry's data endpoint: %v", repository, layers)
		}
	}
	for _, attempt := range []string{roleA + " AccessDenied", applicationA + " AADSTS700213", accountA + " PERMISSION_DENIED"} {
		if refused[attempt] == 0 {
			t.Errorf("the cloud did not refuse %s", attempt)
		}
	}
	// The ServiceAccount and the object are created at the same time. The controller may request a
	// token before it has seen the ServiceAccount. It does not cache such a token, so a subject may
	// get two sessions.
	for subject, n := range sessions {
		// The exception is a ServiceAccount that assumes two roles in a chain. The second one, the
		// partner role, refuses it, so the controller tries again. Each attempt needs a new session
		// of the first role.
		if n > 2 && subject != subjects+"tenant-b:partner-of-tenant-a-sa" {
			t.Errorf("%s was granted %d sessions", subject, n)
		}
	}

	direct := googlePrincipal("tenant-a", "tenant-a-direct-sa")
	if !slices.ContainsFunc(calls, func(c journal.Call) bool {
		return c.Service == "gcp-sts" && c.Principal == direct && c.Subject == subjects+"tenant-a:tenant-a-direct-sa" && c.Granted()
	}) {
		t.Errorf("Google's STS did not take the ServiceAccount for %s", direct)
	}
	if slices.ContainsFunc(calls, func(c journal.Call) bool { return c.Service == "iamcredentials" && c.Principal == direct }) {
		t.Error("the ServiceAccount that is a principal itself asked for another identity")
	}
}

// viewer returns the kubeconfig of a user who may read Lanyard's objects in all namespaces. The
// user has the chart's role for people.
func viewer(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lanyard-view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	for _, o := range []client.Object{account, binding} {
		create(t, o)
		t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), o) })
	}
	return kubeconfig(t, account.Namespace, account.Name)
}

// kubeconfig writes a kubeconfig with which a program acts as a ServiceAccount. It returns the
// file's path.
func kubeconfig(t *testing.T, namespace, account string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: world.ControlPlane().Server(), CertificateAuthority: world.ControlPlane().CAFile()}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token(t, namespace, account)}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: account}
	config.CurrentContext = "e2e"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, "write a kubeconfig", clientcmd.WriteToFile(*config, path))
	return path
}

// TestReconcileRequest asserts that a requested reconciliation runs soon, although the object's
// interval is a year.
func TestReconcileRequest(t *testing.T) {
	beside(t)
	tn := newTenant(t, "requested")
	tn.pushFile(t, "1.0.0", "first")
	o := tn.object("app")
	o.Spec.Interval.Duration = 8760 * 3600e9
	create(t, o)
	await(t, o, "the first artifact", pulled)
	second := tn.pushFile(t, "1.0.0", "second")
	at := request(t, o)
	await(t, o, "the request is handled", handled(at))
	await(t, o, "the second artifact", revision(second))
}
