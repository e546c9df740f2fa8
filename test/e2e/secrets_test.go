package e2e

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/report"
)

// secretMark begins every password that these tests make up, so that it is known wherever it stands.
const secretMark = "e2e-secret-"

// secrets are the forms of what must stand nowhere: the tests' own passwords, also in the headers that carry them, JWTs and ECR's
// passwords (base64 of JSON), ECR's authorization tokens (base64 of "AWS:"), session and user keys, Google's access tokens, and
// the part of an artifact's URL that makes it a key to the artifact.
var secrets = regexp.MustCompile(secretMark + `|(Basic|Bearer) [A-Za-z0-9+/._~-]{16}|eyJ[A-Za-z0-9_-]{10}|QVdTO[A-Za-z0-9+/]{10}|A[SK]IA[A-Z0-9]{16}|ya29\.|` +
	`/(ocirepository|bucket)/[^/ ]+/[^/ ]+/[0-9a-f]{64}/`)

// wantNoSecrets looks at everything that people read: all logs of the world, and all objects and events.
func wantNoSecrets(t *testing.T) {
	t.Helper()
	if jwt := token(t, "default", "default", stsAudience); !secrets.MatchString(jwt) {
		t.Fatal("the pattern of secrets does not know a token of the API server")
	}
	wantNoSecretsInLogs(t)
	if found, events := wantNoSecretsIn(t.Context(), t, ""); found == 0 || events == 0 {
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

// wantNoSecretsIn looks at the objects of a namespace and at the events about them, or at those of all namespaces if it is empty.
// It returns how many there were.
func wantNoSecretsIn(ctx context.Context, t *testing.T, namespace string) (found, events int) {
	t.Helper()
	all, err := report.List(ctx, objects, namespace)
	must(t, "list the objects", err)
	for _, o := range all {
		if o.Artifact != nil {
			o.Artifact.URL = "" // who may read the object may have the artifact
		}
		text, err := json.Marshal(o.Object)
		must(t, "write an object", err)
		wantNoSecret(t, o.Kind+" "+o.GetNamespace()+"/"+o.GetName(), string(text))
	}
	told, err := apiserver.EventsV1().Events(namespace).List(ctx, listAll)
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
