package clouds_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	cloudgcp "github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/must"
)

const (
	pageLocation = "europe-west1"
	pageImage    = pageLocation + "-docker.pkg.dev/" + pageProject + "/tenant-a/app"
	pageProvider = pagePool + "/providers/kubernetes"

	// The project's administrators have their own workload identity pool.
	pageAdministrators = "projects/" + pageNumber + "/locations/global/workloadIdentityPools/administrators"
	pageAdministrator  = "system:serviceaccount:operators:administrator"
)

// pageGcloud is a shell script that replaces gcloud in TestPageOfCloudsAtGoogle. It accepts only
// the commands and flags of the page. For these commands, it sends the same requests as gcloud 528.
// It cannot add a member to a policy that has members.
const pageGcloud = `#!/bin/sh
set -eu
get() { curl --silent --show-error --fail-with-body --header "Authorization: Bearer $(cat "$CLOUDSDK_AUTH_ACCESS_TOKEN_FILE")" "$@"; }
post() { get --header 'Content-Type: application/json' --data "$2" "$1"; }
bind() { # the resource, what reads its policy, the role, the member, the end of the policy
	case $2 in *bindings*) echo "the policy of $1 has members" >&2; exit 1 ;; esac
	etag=$(echo "$2" | sed -n 's/.*"etag": "\([^"]*\)".*/\1/p')
	post "$1:setIamPolicy?alt=json" '{"policy": {"bindings": [{"members": ["'"$4"'"], "role": "'"$3"'"}], "etag": "'"$etag"'"'"$5"'}}'
}
iam=https://iam.googleapis.com/v1/projects/` + pageProject + `
case "$#:$*" in
"5:projects describe ` + pageProject + ` --format value(projectNumber)")
	project=$(get "https://cloudresourcemanager.googleapis.com/v1/projects/$3?alt=json")
	echo "$project" | sed -n 's/.*"projectNumber": "\([0-9]*\)".*/\1/p' ;;
"6:services enable sts.googleapis.com iamcredentials.googleapis.com --project ` + pageProject + `")
	post "https://serviceusage.googleapis.com/v1/projects/$6/services:batchEnable?alt=json" '{"serviceIds": ["'"$3"'", "'"$4"'"]}' ;;
"8:iam workload-identity-pools create my-cluster --project ` + pageProject + ` --location global")
	post "$iam/locations/global/workloadIdentityPools?alt=json&workloadIdentityPoolId=$4" '{"disabled": false}' ;;
"15:iam workload-identity-pools providers create-oidc kubernetes --project ` + pageProject + ` --location global"\
" --workload-identity-pool my-cluster --issuer-uri ` + pageIssuer + ` --attribute-mapping google.subject=assertion.sub" | \
"17:iam workload-identity-pools providers create-oidc kubernetes --project ` + pageProject + ` --location global"\
" --workload-identity-pool my-cluster --issuer-uri ` + pageIssuer + ` --attribute-mapping google.subject=assertion.sub --jwk-json-path keys.json")
	keys=
	if [ $# = 17 ]; then keys=', "jwksJson": "'$(sed 's/"/\\"/g' "${17}")'"'; fi
	post "$iam/locations/global/workloadIdentityPools/${11}/providers?alt=json&workloadIdentityPoolProviderId=$5" \
		'{"attributeMapping": {"google.subject": "assertion.sub"}, "disabled": false, "oidc": {"issuerUri": "'"${13}"'"'"$keys"'}}' ;;
"12:artifacts repositories add-iam-policy-binding tenant-a --project ` + pageProject + ` --location ` + pageLocation + ` --role roles/artifactregistry.reader --member "*)
	repository=https://artifactregistry.googleapis.com/v1/projects/$6/locations/$8/repositories/$4
	policy=$(get "$repository:getIamPolicy?alt=json")
	bind "$repository" "$policy" "${10}" "${12}" '' ;;
"6:iam service-accounts create tenant-a-app-reader --project ` + pageProject + `")
	post "$iam/serviceAccounts?alt=json" '{"accountId": "'"$4"'", "serviceAccount": {}}' ;;
"10:iam service-accounts add-iam-policy-binding ` + pageEmail + ` --project ` + pageProject + ` --role roles/iam.workloadIdentityUser --member "*)
	policy=$(get --request POST "$iam/serviceAccounts/$4:getIamPolicy?alt=json&options.requestedPolicyVersion=3")
	bind "$iam/serviceAccounts/$4" "$policy" "$8" "${10}" ', "version": 3' ;;
*) echo "unexpected: gcloud $*" >&2; exit 1 ;;
esac
`

// kubernetesProvider returns the workload identity provider that the page's commands make in a
// pool.
func kubernetesProvider() cloudgcp.Provider {
	return cloudgcp.Provider{ID: "kubernetes", IssuerURI: pageIssuer, AttributeMapping: map[string]string{"google.subject": "assertion.sub"}}
}

// openGooglePage reads docs/clouds.md, and starts a local cloud in which the page's commands for
// Google Cloud can run. In this cloud, the page's project has an administrator and a repository
// with an image. A script takes the place of gcloud, and sends the administrator's token.
func openGooglePage(t *testing.T) *page {
	t.Helper()
	p := openPage(t, "https://iam.googleapis.com/"+pageProvider)
	cloud := p.cloud.GCP()
	must.Succeed(t, cloud.PutRepository(pageProject, cloudgcp.Repository{Location: pageLocation, Name: "tenant-a"}))
	must.Succeed(t, cloud.PutCluster(pageProject, cloudgcp.Cluster{Location: pageLocation, Name: "my-cluster", Issuer: pageIssuer}))
	must.Succeed(t, cloud.PutMetadata(cloudgcp.Metadata{Project: pageProject, ClusterLocation: pageLocation, ClusterName: "my-cluster"}))
	cloud.ServeRegistry(func(cloudgcp.Registry) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})

	must.Succeed(t, cloud.PutPool(pageProject, cloudgcp.Pool{ID: "administrators", Providers: []cloudgcp.Provider{kubernetesProvider()}}))
	var bindings []cloudgcp.Binding
	for _, role := range []string{
		"roles/serviceusage.serviceUsageAdmin", "roles/iam.workloadIdentityPoolAdmin", "roles/iam.serviceAccountAdmin", "roles/artifactregistry.admin",
	} {
		bindings = append(bindings, cloudgcp.Binding{Role: role, Members: []string{"principal://iam.googleapis.com/" + pageAdministrators + "/subject/" + pageAdministrator}})
	}
	must.Succeed(t, cloud.PutBindings(pageProject, bindings))
	folder := t.TempDir()
	p.env = append(p.env, "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE="+filepath.Join(folder, "token"))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "token"), []byte(p.federated(t, pageAdministrators+"/providers/kubernetes", pageAdministrator)), 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "gcloud"), []byte(pageGcloud), 0o700))
	for i, variable := range p.env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			p.env[i] = "PATH=" + folder + string(os.PathListSeparator) + path
		}
	}
	return p
}

// federated returns an access token of the local cloud for a subject. The cloud issues it in
// exchange for a token of the page's issuer.
func (p *page) federated(t *testing.T, provider, subject string) string {
	t.Helper()
	proof, err := p.issuer.Mint(oidc.Claims{"sub": subject, "aud": "https://iam.googleapis.com/" + provider})
	must.Succeed(t, err)
	client := &http.Client{Transport: p.base}
	res, err := client.PostForm("https://sts.googleapis.com/v1/token", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"//iam.googleapis.com/" + provider},
		"scope": {"https://www.googleapis.com/auth/cloud-platform"}, "requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"subject_token": {proof}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	})
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	must.Succeed(t, json.NewDecoder(res.Body).Decode(&answer))
	if answer.AccessToken == "" {
		t.Fatalf("%s got no token: HTTP %d", subject, res.StatusCode)
	}
	return answer.AccessToken
}

// annotations returns the annotations that the page's commands added to the ServiceAccount.
func (p *page) annotations(t *testing.T) map[string]string {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(p.dir, "annotated"))
	must.Succeed(t, err)
	out := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		if annotation, ok := strings.CutPrefix(line, "annotate serviceaccount app-reader --namespace tenant-a "); ok {
			name, value, _ := strings.Cut(strings.TrimSpace(annotation), "=")
			out[name] = value
		}
	}
	return out
}

// reads gets a registry credential from Lanyard, as the ServiceAccount app-reader of the namespace,
// with these annotations. With the credential, it reads the manifest of pageImage, the image in
// docs/clouds.md. It returns the HTTP status of the registry's answer. If Lanyard gives no
// credential, reads returns the code of Lanyard's error instead.
func (p *page) reads(t *testing.T, provider auth.Provider, namespace string, annotations map[string]string) string {
	t.Helper()
	token, err := auth.GetToken(t.Context(), provider, auth.WithImageRepository(pageImage),
		auth.WithServiceAccount(namespace, "app-reader", pageAccounts{p, auth.Account{UID: "1", Attributes: annotations}}))
	if err != nil {
		return string(auth.CodeOf(err))
	}
	login, ok := token.(*auth.RegistryCredentials)
	if !ok {
		t.Fatalf("%T, want a login at the registry", token)
	}
	host, path, _ := strings.Cut(pageImage, "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/"+path+"/manifests/1.0.0", nil)
	must.Succeed(t, err)
	r.SetBasicAuth(login.Username, login.Password.Reveal())
	res, err := p.base.RoundTrip(r)
	must.Succeed(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	must.Succeed(t, res.Body.Close())
	return res.Status
}

// TestPageOfCloudsAtGoogle runs the commands of docs/clouds.md at Google Cloud, with the test's own
// gcloud. In each variant, the last commands permit the page's ServiceAccount to read the
// repository. Before these commands, Lanyard cannot read the repository. After them, Lanyard can
// read it as this ServiceAccount, but not as another.
func TestPageOfCloudsAtGoogle(t *testing.T) {
	const denied, allowed = "403 Forbidden", "200 OK"
	refused := string(auth.CodeTrustRefused)
	blocks := openPage(t, "none").commands(t, "Google Cloud")
	if len(blocks) != 7 { // the last block is not used; it is about a service account of another project
		t.Fatalf("the part has %d blocks of commands", len(blocks))
	}
	names, pool, gke, direct, impersonation, check := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4], checkOf(t, blocks)
	const mapping = "--attribute-mapping google.subject=assertion.sub"
	uploaded := strings.Replace(pool, mapping, mapping+" --jwk-json-path keys.json", 1)
	inPool := map[string]string{gcp.ProviderAnnotation: pageProvider}
	for _, variant := range []struct {
		name            string
		trust, permit   []string // blocks of commands
		annotations     map[string]string
		before, another string // results of reads(): before the permission, and for another account
		unreachable     bool   // the cloud cannot reach the issuer
	}{
		{name: "direct principal", trust: []string{names, pool}, permit: []string{direct, check}, annotations: inPool, before: denied, another: denied},
		{
			name: "service account", trust: []string{names, pool}, permit: []string{impersonation, check},
			annotations: map[string]string{gcp.ProviderAnnotation: pageProvider, gcp.ServiceAccountAnnotation: pageEmail}, before: refused, another: refused,
		},
		{
			name: "uploaded keys", trust: []string{names, uploaded}, permit: []string{direct, check}, annotations: inPool,
			before: denied, another: denied, unreachable: true,
		},
		{name: "direct principal of GKE", trust: []string{names, gke}, permit: []string{direct}, annotations: map[string]string{}, before: denied, another: denied},
		{
			name: "service account, on GKE", trust: []string{names, gke}, permit: []string{impersonation},
			annotations: map[string]string{gcp.ServiceAccountAnnotation: pageEmail}, before: refused, another: refused,
		},
	} {
		t.Run(variant.name, func(t *testing.T) {
			p := openGooglePage(t)
			proxy, err := url.Parse(p.cloud.ProxyURL())
			must.Succeed(t, err)
			provider, err := gcp.NewProvider(gcp.Config{Transport: p.base, MetadataHost: proxy.Host, Timeout: patience})
			must.Succeed(t, err)
			t.Cleanup(provider.Close)
			if variant.unreachable {
				must.Succeed(t, os.WriteFile(filepath.Join(p.dir, "keys.json"), p.issuer.JWKS(), 0o600))
				must.Succeed(t, p.cloud.Handle(strings.TrimPrefix(pageIssuer, "https://"), nil))
			}

			begin := append([]string{"set -a"}, p.commands(t, "Before you begin")...)
			if output, err := p.run(t, append(append(begin, variant.trust...), "export -p > variables")...); err != nil {
				t.Fatalf("%v:\n%s", err, output)
			}
			if got := p.reads(t, provider, "tenant-a", variant.annotations); got != variant.before {
				t.Errorf("before the permission: %s, want %s", got, variant.before)
			}
			output, err := p.run(t, append([]string{". ./variables"}, variant.permit...)...)
			checked := variant.permit[len(variant.permit)-1] == check
			if err != nil || (checked && !strings.HasSuffix(output, "\n200")) {
				t.Fatalf("%v, want 200 at the end of a check:\n%s", err, output)
			}
			annotations := p.annotations(t)
			if len(annotations) != len(variant.annotations) {
				t.Errorf("annotations %q, want %q", annotations, variant.annotations)
			}
			for name, want := range variant.annotations {
				if annotations[name] != want {
					t.Errorf("annotation %s=%q, want %q", name, annotations[name], want)
				}
			}
			if got := p.reads(t, provider, "tenant-a", annotations); got != allowed {
				t.Errorf("the ServiceAccount: %s, want %s", got, allowed)
			}
			if got := p.reads(t, provider, "tenant-b", annotations); got != variant.another {
				t.Errorf("another ServiceAccount: %s, want %s", got, variant.another)
			}
			if !checked {
				return
			}
			must.Succeed(t, p.cloud.GCP().DeletePool(pageProject, "my-cluster"))
			if output, err := p.run(t, ". ./variables", check); err != nil || output != "400" {
				t.Errorf("the check, without the pool: %q, %v; want 400", output, err)
			}
		})
	}

	// An administrator without roles is refused.
	p := openGooglePage(t)
	must.Succeed(t, p.cloud.GCP().PutBindings(pageProject, nil))
	if output, err := p.run(t, append(p.commands(t, "Before you begin"), names)...); err == nil || !strings.Contains(output, "error: 403") {
		t.Errorf("without roles: %v, want 403:\n%s", err, output)
	}
}
