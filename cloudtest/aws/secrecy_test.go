package aws_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
)

// TestJournalHasNoSecrets makes granted and refused calls with every kind of secret. None of the
// secrets may be in the journal.
func TestJournalHasNoSecrets(t *testing.T) {
	w := newWorld(t)
	client := w.Client()
	good, bad := w.Mint(t, subjectA), w.Mint(t, subjectB)
	secrets := map[string]string{"user's secret": pusherSecret, "token": good, "refused token": bad}
	out, err := assume(t.Context(), stsClient(w.Transport(), nil), roleA, good)
	must.Succeed(t, err)
	_, _ = assume(t.Context(), stsClient(w.Transport(), nil), roleA, bad)
	_, _ = assume(t.Context(), stsClient(w.Transport(), nil), roleA, bad+"x")
	_, _ = assume(t.Context(), stsClient(w.Transport(), nil), roleA, strings.Repeat("s", 20001))
	secrets["session's secret"], secrets["session token"] = *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken
	login := w.login(t, static(out.Credentials))
	secrets["registry token"] = strings.TrimPrefix(login, "Basic ")
	for _, authorization := range []string{login, login + "x", strings.Replace(login, "Basic", "Bearer", 1)} {
		_ = w.request(t, client, http.MethodGet, "https://"+registryHost+"/v2/tenant-a/app/manifests/1?secret=parameter", authorization, "")
		_ = w.request(t, client, http.MethodGet, "https://public.ecr.aws/v2/lanyard/tools/manifests/1", authorization, "")
	}
	_ = w.request(t, client, http.MethodGet, issuerURL+"/keys?secret=parameter", "Bearer "+good, "")
	secrets["query"] = "secret=parameter"
	for _, style := range []func(*s3.Options){func(*s3.Options) {}, pathStyle} {
		_, _ = getObject("some-bucket", "key")(t, s3Client(w.Transport(), static(out.Credentials), style))
		_, _ = putObject("some-bucket", "key", "secret=parameter")(t, s3Client(w.Transport(), pusher(), style))
	}
	calls := w.Journal().Calls(journal.Filter{})
	if len(calls) < 14 {
		t.Fatalf("only %d calls", len(calls))
	}
	told, err := json.Marshal(calls)
	must.Succeed(t, err)
	for name, secret := range secrets {
		parts := strings.Split(secret, ".")
		if strings.Contains(string(told), secret) || strings.Contains(string(told), parts[len(parts)-1]) {
			t.Errorf("the journal has the %s", name)
		}
	}
}

// TestChangesRaceCalls changes roles while they are assumed, for the race detector. No call may see
// half a change.
func TestChangesRaceCalls(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			client := stsClient(w.Transport(), nil)
			for range 10 {
				_, err := assume(t.Context(), client, roleA, w.Mint(t, subjectA))
				if got := outcomeOf(err); got != (outcome{}) && got != (outcome{"AccessDenied", 403}) {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			for _, subject := range []string{subjectB, subjectA} {
				if err := w.AWS().PutTrustPolicy(account, "tenant-a-ecr", rig.TrustPolicy(subject)); err != nil {
					t.Error(err)
				}
			}
			if err := w.AWS().DeleteRole(account, "tenant-a-ecr"); err != nil {
				t.Error(err)
			}
			if err := w.AWS().PutRole(account, rig.TenantRole("tenant-a", subjectA)); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}
