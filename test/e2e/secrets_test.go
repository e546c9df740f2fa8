package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretMark begins every password that these tests make up, so that it is known wherever it stands.
const secretMark = "e2e-secret-"

// secrets matches what must appear nowhere. These are the tests' own passwords, the headers that
// carry them, JWTs, private keys, ECR's passwords (base64 of JSON) and ECR's authorization tokens
// (base64 of "AWS:"). The keys, secrets and tokens of AWS sessions, user keys, Google's access tokens
// and signatures in URLs follow, and the secret part of an artifact's URL.
var secrets = regexp.MustCompile(secretMark + `|(Basic|Bearer) [A-Za-z0-9+/._~-]{16}|eyJ[A-Za-z0-9_-]{10}|PRIVATE KEY-----|QVdTO[A-Za-z0-9+/]{10}|` +
	`A[SK]IA[A-Z0-9]{16}|` + aws.SessionSecretPrefix + `|IQoJb3JpZ2luX2Vj|ya29\.|(X-Amz-Signature|[?&]sig)=[A-Za-z0-9%]{10}|` +
	`/(ocirepository|bucket)/[^/ ]+/[^/ ]+/[0-9a-f]{64}/`)

// loudest are values of the chart that make all programs log whatever they can.
func loudest() map[string]any { return map[string]any{"log": map[string]any{"level": "debug"}} }

// wantNoSecrets looks at everything that people read: all logs of the world, and all objects and events.
func wantNoSecrets(t *testing.T) {
	t.Helper()
	if jwt := token(t, "default", "default", stsAudience); !secrets.MatchString(jwt) {
		t.Fatal("the pattern of secrets does not know a token of the API server")
	}
	wantNoSecretsInLogs(t)
	if found, events := wantNoSecretsIn(t.Context(), t, world, ""); found == 0 || events == 0 {
		t.Errorf("there are %d objects and %d events: nothing was looked at", found, events)
	}
}

func wantNoSecretsInLogs(t *testing.T) {
	t.Helper()
	logs := controllerLogs(t)
	if len(logs) == 0 {
		t.Error("there is no log of a controller")
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		must(t, "read a log", err)
		wantNoSecret(t, path, string(text))
	}
}

// wantNoSecretsAt looks at all logs of another cluster, and at its objects and events.
func wantNoSecretsAt(ctx context.Context, t *testing.T, cluster *local.Cluster) {
	t.Helper()
	logs, err := filepath.Glob(cluster.Path("*.log"))
	must(t, "find the logs", err)
	for _, path := range append(logs, cluster.Path("cluster", "audit.log")) {
		text, err := os.ReadFile(path)
		must(t, "read a log", err)
		wantNoSecret(t, path, string(text))
	}
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	switch _, err := typed.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion().String()); {
	case apierrors.IsNotFound(err): // the chart is not installed
	default:
		must(t, "list the kinds", err)
		wantNoSecretsIn(ctx, t, cluster, "")
	}
}

// wantNoSecretsIn looks at the objects of a namespace and at the events about them, or at those of all namespaces if it is empty.
// It returns how many there were.
func wantNoSecretsIn(ctx context.Context, t *testing.T, cluster *local.Cluster, namespace string) (found, events int) {
	t.Helper()
	all, err := report.List(ctx, cluster.Client(), namespace)
	must(t, "list the objects", err)
	for _, o := range all {
		if o.Artifact != nil {
			o.Artifact.URL = "" // who may read the object may have the artifact
		}
		text, err := json.Marshal(o.Resource)
		must(t, "write an object", err)
		wantNoSecret(t, o.Kind+" "+o.GetNamespace()+"/"+o.GetName(), string(text))
	}
	for _, list := range []client.ObjectList{&identityv1.KeyRingList{}, &identityv1.WorkloadIdentityList{}} {
		must(t, "list the objects", cluster.Client().List(ctx, list, client.InNamespace(namespace)))
		text, err := json.Marshal(list)
		must(t, "write objects", err)
		wantNoSecret(t, fmt.Sprintf("a %T", list), string(text))
	}
	typed, err := kubernetes.NewForConfig(cluster.Config())
	must(t, "make a client", err)
	told, err := typed.EventsV1().Events(namespace).List(ctx, listAll)
	must(t, "list events", err)
	for _, e := range told.Items {
		wantNoSecret(t, "event "+e.Namespace+"/"+e.Name, e.Note)
	}
	return len(all), len(told.Items)
}

func wantNoSecret(t *testing.T, where, text string) {
	t.Helper()
	if at := secrets.FindStringIndex(text); at != nil {
		t.Errorf("%s holds a secret after %q", where, text[max(0, at[0]-80):at[0]+4])
	}
}
