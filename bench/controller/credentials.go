package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	ocihandler "github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/bench/internal/fleet"
	"github.com/lanyard-dev/lanyard/bench/internal/metrics"
	"github.com/lanyard-dev/lanyard/internal/local"
)

// credentials says which kind of credentials the objects of a run use.
type credentials struct {
	// Names of rows in the table.
	identitiesName, proofsName, exchangesName string
	// identities is the number of credentials that are used at the same time.
	identities int
	// complete sets the URL in an object's spec, and the fields that select its credential. The
	// account is the name of a ServiceAccount; certificates do not need it.
	complete func(spec *v1alpha1.OCIRepositorySpec, account string)
	// proofs returns how many calls to the API server were made to get proofs, such as
	// ServiceAccount tokens.
	proofs func(metrics.Samples) float64
	// tokenServer makes the credentials. If it is nil, AWS does.
	tokenServer *program
	close       func()
}

// installRoles installs the chart, and creates ServiceAccounts with a role at AWS.
func installRoles(ctx context.Context, w *world, values map[string]any) (*credentials, error) {
	if err := fleet.Publish(ctx, w.Cloud()); err != nil {
		return nil, err
	}
	if err := w.InstallChart(ctx, values); err != nil {
		return nil, err
	}
	if _, err := fleet.Namespaces(ctx, w.Client(), w.n); err != nil {
		return nil, err
	}
	accounts := w.n / fleet.ObjectsPerAccount
	return &credentials{
		identitiesName: "ServiceAccounts, each with a role",
		proofsName:     "… of them for proofs (read an account, request its token)",
		exchangesName:  "exchanges at AWS STS",
		identities:     accounts,
		complete: func(spec *v1alpha1.OCIRepositorySpec, account string) {
			spec.URL, spec.Provider, spec.ServiceAccountName = fleet.URL(local.Region), v1alpha1.ProviderAWS, account
		},
		proofs: func(s metrics.Samples) float64 {
			const requests, accounts = "apiserver_request_total", `resource="serviceaccounts"`
			return s.Sum(requests, accounts, `subresource=""`, `verb="GET"`) +
				s.Sum(requests, accounts, `subresource="token"`, `verb="POST"`)
		},
		close: func() {},
	}, fleet.Accounts(ctx, w.Client(), accounts)
}

// installCertificates installs the chart with a SPIFFE trust domain, and starts the token server.
// It also starts a registry on this machine. The registry accepts any client certificate, and
// refuses clients without one.
func installCertificates(ctx context.Context, w *world, values map[string]any) (_ *credentials, err error) {
	const repository = "app"
	var closed atomic.Bool // true if the registry refuses clients without a certificate
	storage := ocihandler.New(ocihandler.Logger(log.New(io.Discard, "", 0)))
	r := startRegistry(http.HandlerFunc(func(answer http.ResponseWriter, req *http.Request) {
		if closed.Load() && len(req.TLS.PeerCertificates) == 0 {
			http.Error(answer, "show a certificate", http.StatusForbidden)
			return
		}
		storage.ServeHTTP(answer, req)
	}), tls.RequestClientCert)
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	file := w.Path("app.yaml")
	if err := os.WriteFile(file, []byte("app"), 0o600); err != nil {
		return nil, err
	}
	if err := r.push(ctx, repository, file); err != nil {
		return nil, err
	}
	closed.Store(true)
	authorities := w.Path("authorities.pem")
	if err := r.trust(w.Cloud().CAPEM(), authorities); err != nil {
		return nil, err
	}
	// Create the namespaces before the chart, which has RoleBindings in them.
	tenants, err := fleet.Namespaces(ctx, w.Client(), w.n)
	if err != nil {
		return nil, err
	}
	if err := fleet.Accounts(ctx, w.Client(), w.n/fleet.ObjectsPerAccount); err != nil {
		return nil, err
	}
	values["spiffe"] = map[string]any{"trustDomain": "scale.example.com", "issuer": "https://spiffe.scale.example.com"}
	values["issuer"] = map[string]any{"keys": map[string]any{"publishDelay": "1m"}}
	values["rbac"] = map[string]any{"tenantNamespaces": toList(tenants)}
	values["identity"] = map[string]any{"allowedEndpointHosts": toList(r.hosts())}
	values["extraEnv"] = local.Variables(w.Cloud().Cloud.Env(authorities))
	if err := w.InstallChart(ctx, values); err != nil {
		return nil, err
	}
	server, err := w.startIssuer(ctx, w.authority)
	return &credentials{
		identitiesName: "objects, each with a certificate",
		proofsName:     "at rest: reads of objects per minute, by both programs",
		exchangesName:  "certificates made by the token server",
		identities:     w.n,
		complete: func(spec *v1alpha1.OCIRepositorySpec, _ string) {
			spec.URL = r.url(r.secure, repository)
			spec.Credential = &v1alpha1.Credential{Type: v1alpha1.CredentialSpiffeCertificate}
		},
		// The API server forwards requests for certificates to the token server, and does not count
		// them. But for each certificate, both the controller and the token server read the
		// OCIRepository. The table shows these reads.
		proofs: func(s metrics.Samples) float64 {
			return s.Sum("apiserver_request_total", `resource="ocirepositories"`, `subresource=""`, `verb="GET"`)
		},
		tokenServer: server,
		close:       r.close,
	}, err
}

// authority returns an error until the trust domain has an active authority.
func (w *world) authority(ctx context.Context, _ *program) error {
	ring, key := &identityv1.KeyRing{}, client.ObjectKey{Namespace: local.Namespace, Name: identityv1.SPIFFEKeyRing}
	if err := w.Client().Get(ctx, key, ring); err != nil {
		return err
	}
	for _, a := range ring.Status.Authorities {
		if a.State == identityv1.KeyActive {
			return nil
		}
	}
	return errors.New("no authority signs")
}

// toList returns strings as a value of the chart, whose schema refuses []string.
func toList(values []string) (list []any) {
	for _, value := range values {
		list = append(list, value)
	}
	return list
}
