package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/fault"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// TestMetadataServer runs a controller without a metadata server, as outside GKE. An object whose
// ServiceAccount sets no workload identity provider gets an error that says what to do. The test
// then sets a provider, and later starts the metadata server.
func TestMetadataServer(t *testing.T) {
	alone(t, "its fault hits all callers of the metadata server")
	const pool = "e2e-cluster"
	s := takeShard(t)
	s.start(t, "no-metadata", nil)
	end := inject(t, fault.Fault{Service: gcp.ServiceMetadata, Kind: fault.Drop})
	tn := s.newTenant(t, "no-metadata")
	account := tn.atGoogle(t)
	manifest := tn.pushToGoogle(t, account, "1.0.0")
	o := tn.googleObject("app")
	create(t, o)
	await(t, o, "the failure", failing("Unreachable", "the metadata server", "outside GKE set", providerAnnotation, tn.namespace+"/"+puller))

	must(t, "make a pool", world.Cloud().GCP().PutPool(googleProject, gcp.Pool{ID: pool, Providers: []gcp.Provider{{
		ID: "cluster", IssuerURI: local.Issuer, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
	}}}))
	must(t, "let the pool's principal be the service account", world.Cloud().GCP().PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email: account, Bindings: []gcp.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{
			googleIAM + pool + "/subject/" + tn.subject, "serviceAccount:" + googlePool + "[" + tn.namespace + "/" + puller + "]",
		}}},
	}))
	tn.annotate(t, providerAnnotation, "projects/987654321098/locations/global/workloadIdentityPools/"+pool+"/providers/cluster")
	await(t, o, "the artifact, by way of the provider", revision(manifest))

	end()
	before := world.Cloud().Journal().Last()
	tn.annotate(t, providerAnnotation, "")
	await(t, o, "the artifact, by way of the cluster's own pool", func(o *v1alpha1.OCIRepository) error {
		calls := world.Cloud().Journal().Calls(journal.Filter{
			Service: gcp.ServiceIAMCredentials, Principal: googlePrincipal(tn.namespace, puller), Verdict: journal.Granted, After: before,
		})
		if len(calls) == 0 {
			return errors.New("no principal of that pool was the service account yet")
		}
		return revision(manifest)(o)
	})
}

// TestThrottledExchange tests that the controller waits as long as Entra, or Google's STS, asks it
// to wait.
func TestThrottledExchange(t *testing.T) {
	alone(t, "its faults hit all callers of Entra and of Google's STS")
	const pause = 3 * time.Second
	tn := newTenant(t, "throttled")
	manifests := map[*v1alpha1.OCIRepository]string{
		tn.azureObject("azure"):   tn.pushToAzure(t, tn.atAzure(t), "1.0.0"),
		tn.googleObject("google"): tn.pushToGoogle(t, tn.atGoogle(t), "1.0.0"),
	}
	begin := world.Cloud().Journal().Last()
	exchanges := []journal.Filter{{Service: "entra", Operation: "Token", After: begin}, {Service: gcp.ServiceSTS, Operation: "ExchangeToken", After: begin}}
	for _, f := range exchanges {
		inject(t, fault.Fault{Service: f.Service, Operation: f.Operation, Kind: fault.Throttle, RetryAfter: pause, Count: 1})
	}
	for o := range manifests {
		create(t, o)
	}
	for o := range manifests {
		await(t, o, "the failure", failing("Throttled", "exchange", "wait"))
	}
	for o, manifest := range manifests {
		await(t, o, "the artifact", revision(manifest))
	}
	for _, f := range exchanges {
		calls := world.Cloud().Journal().Calls(f)
		if len(calls) < 2 || calls[0].Granted() || !calls[1].Granted() {
			t.Fatalf("%s was asked: %+v; want a refusal and then a token", f.Service, calls)
		}
		// The controller varies its pauses by 5 %, so allow a slightly shorter pause.
		if waited := calls[1].Time.Sub(calls[0].Time); waited < pause*94/100 {
			t.Errorf("%s was asked again after %s; it had asked for %s", f.Service, waited, pause)
		}
	}
}

// TestClocks makes the clocks of all clouds differ from the cluster's clock. If a cloud accepts
// this difference, objects must work; otherwise their conditions must report the refusal.
func TestClocks(t *testing.T) {
	alone(t, "it moves the clocks of all clouds")
	const azure, google, amazon = "azure", "google", "amazon"
	tests := []struct {
		name    string
		skew    time.Duration
		refused map[string]func(o *v1alpha1.OCIRepository) error
	}{
		{"ahead", 5 * time.Minute, nil},
		// AWS and Google refuse tokens whose issue time is five minutes in the future; Entra
		// accepts them.
		{"behind", -5 * time.Minute, map[string]func(o *v1alpha1.OCIRepository) error{
			amazon: failing("TrustRefused", "IDPRejectedClaim", "the clock of the API server"),
			google: failing("ProofInvalid", "invalid_grant", "the clock of the API server"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tn := newTenant(t, "clocks-"+tt.name)
			manifests := map[string]string{
				amazon: tn.pushFile(t, "1.0.0", tn.namespace),
				azure:  tn.pushToAzure(t, tn.atAzure(t), "1.0.0"),
				google: tn.pushToGoogle(t, tn.atGoogle(t), "1.0.0"),
			}
			pulls := []*v1alpha1.OCIRepository{tn.object(amazon), tn.azureObject(azure), tn.googleObject(google)}
			end := inject(t, fault.Fault{Kind: fault.Skew, Skew: tt.skew})
			for _, o := range pulls {
				create(t, o)
			}
			for _, o := range pulls {
				want := tt.refused[o.Name]
				if want == nil {
					want = revision(manifests[o.Name])
				}
				await(t, o, "what comes of it", want)
			}
			end()
			for _, o := range pulls {
				request(t, o)
				await(t, o, "the artifact, once the clocks agree", revision(manifests[o.Name]))
			}
		})
	}
}
