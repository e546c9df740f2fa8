package e2e

import (
	"fmt"
	"io/fs"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/examples"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/internal/report"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// proposedGarden has the objects to which the sample token in Gardener's proposal GEP-26 refers.
const proposedGarden = `
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: local}
spec: {namespace: garden-local}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: local}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: banana, namespace: garden-local}
credentialsRef: {apiVersion: identity.lanyard.dev/v1alpha1, kind: WorkloadIdentity, namespace: garden-local, name: banana-testing}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: foo, namespace: garden-local}
spec: {seedName: local, credentialsBindingName: banana}
`

// proposalAtClouds tests the flow of Gardener's proposal GEP-26. It requests a token of the
// proposal's WorkloadIdentity for a Shoot. The token must have the claims of the proposal's sample
// token. AWS and MinIO must give a session for the token.
func proposalAtClouds(t *testing.T, w *issuerWorld) {
	t.Helper()
	admin, identity := w.people, &v1alpha1.WorkloadIdentity{}
	must(t, "read the identity", admin.Get(t.Context(), proposed(), identity))
	home := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": identityNamespace}}}
	must(t, "read the namespace", admin.Get(t.Context(), client.ObjectKeyFromObject(home), home))
	home.SetLabels(map[string]string{"project.gardener.cloud/name": "local"})
	must(t, "label the namespace", admin.Update(t.Context(), home))
	made := map[string]*unstructured.Unstructured{}
	for manifest := range strings.SplitSeq(proposedGarden, "---\n") {
		o := createManifest(t, admin, manifest)
		made[o.GetKind()] = o
	}
	shoot := made["Shoot"]
	token, err := requestFor(t.Context(), w.api, proposed(), fmt.Sprintf(
		`{"contextObject":{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","name":"foo","namespace":%q,"uid":%q}}`, identityNamespace, shoot.GetUID()))
	must(t, "get a token for a Shoot", err)

	var claims struct {
		Gardener map[string]any `json:"gardener.cloud"`
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	must(t, "read the token", err)
	// Do not verify the token here, because AWS and MinIO will do so.
	must(t, "read the claims", parsed.UnsafeClaimsWithoutVerification(&claims))
	if want := map[string]any{
		"workloadIdentity": map[string]any{"name": identityName, "namespace": identityNamespace, "uid": string(identity.UID)},
		"shoot":            map[string]any{"name": "foo", "namespace": identityNamespace, "uid": string(shoot.GetUID())},
		"project":          map[string]any{"name": "local", "uid": string(made["Project"].GetUID())},
		"seed":             map[string]any{"name": "local", "uid": string(made["Seed"].GetUID())},
		"garden":           map[string]any{"id": "prod"},
	}; !reflect.DeepEqual(claims.Gardener, want) {
		t.Errorf("the claim gardener.cloud is %v, want %v", claims.Gardener, want)
	}

	const audience = "team-foo"
	subject := fmt.Sprintf("lanyard.dev:workloadidentity:%s:%s:%s", identityNamespace, identityName, identity.UID)
	trustIdentity(t, ownIssuer, string(identity.UID))
	role := "arn:aws:iam::" + proposedAccount + ":role/" + proposedRole
	if v := assume(t, cloudClient(), stsURL, role, token); !v.granted() {
		t.Errorf("AWS says of the token: %s", v)
	}
	store := startMinIO(t, minioConfig{claim: "sub", audience: audience, issuer: ownIssuer})
	store.putPolicy(t, subject, statements(`{"Effect":"Allow","Action":["s3:ListAllMyBuckets"],"Resource":["arn:aws:s3:::*"]}`))
	if v := assume(t, store.client, store.url, role, token); !v.granted() {
		t.Errorf("MinIO says of the token: %s", v)
	}
}

// Names for the function objectsAtClouds: the namespaces of two tenants, an owner and a thief, and
// the owner's resources at the clouds.
const (
	ownerNamespace, thiefNamespace = "identity-owner", "identity-thief"
	identityBucket                 = "e2e-identities"
	identityRegistry               = "identityowner"
	identityStorage                = "identityowner"
	identityPool                   = "identities"
)

// identityManifests are a tenant's objects at one cloud. The words in capitals are placeholders.
const identityManifests = `
apiVersion: identity.lanyard.dev/v1alpha1
kind: WorkloadIdentity
metadata: {name: CLOUD, namespace: TENANT}
spec:
  audiences: ["AUDIENCE"]
  subjectFormat: Name
  targetSystem: {type: CLOUD, providerConfig: CONFIG}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: OCIRepository
metadata: {name: CLOUD-repository, namespace: TENANT, annotations: {demo.lanyard.dev/expect: EXPECTED}}
spec: {url: "oci://REPOSITORY", ref: {tag: 1.0.0}, interval: 1m, provider: CLOUD, workloadIdentityName: CLOUD}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: ImageRepository
metadata: {name: CLOUD-image, namespace: TENANT, annotations: {demo.lanyard.dev/expect: EXPECTED}}
spec: {image: REPOSITORY, interval: 1m, provider: CLOUD, workloadIdentityName: CLOUD}
---
apiVersion: toolkit.lanyard.dev/v1alpha1
kind: Bucket
metadata: {name: CLOUD-bucket, namespace: TENANT, annotations: {demo.lanyard.dev/expect: EXPECTED}}
spec: {BUCKET, interval: 1m, provider: CLOUD, workloadIdentityName: CLOUD}
`

// identitySubject returns the claim sub of a tenant's WorkloadIdentity for a cloud.
func identitySubject(namespace, cloud string) string {
	return "lanyard.dev:workloadidentity:" + namespace + ":" + cloud
}

// objectsAtClouds creates objects that use WorkloadIdentities to fetch content. There is one object
// for each cloud and each kind that fetches. The clouds must accept the objects in ownerNamespace.
// They must refuse the same objects in thiefNamespace.
func objectsAtClouds(t *testing.T, cluster *local.Cluster) {
	t.Helper()
	begin := world.Cloud().Journal().Last()
	clouds := []*strings.Replacer{identityAtAWS(t), identityAtAzure(t), identityAtGoogle(t)}
	files := fstest.MapFS{}
	for namespace, expected := range map[string]string{ownerNamespace: "pulled", thiefNamespace: "refused:TrustRefused"} {
		all := []string{fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", namespace)}
		for _, cloud := range clouds {
			all = append(all, strings.NewReplacer("TENANT", namespace, "EXPECTED", expected).Replace(cloud.Replace(identityManifests)))
		}
		files[namespace+".yaml"] = &fstest.MapFile{Data: []byte(strings.Join(all, "---\n"))}
	}
	manifests, err := local.ReadManifests(t.Context(), "", files)
	must(t, "read the objects", err)
	artifacts, err := examples.Artifacts()
	must(t, "read the artifacts", err)
	sample, err := fs.Sub(artifacts, "tenant-a")
	must(t, "read the artifacts", err)
	_, err = world.Cloud().Fill(t.Context(), manifests, sample, "1.0.0")
	must(t, "publish the artifacts", err)
	_, err = cluster.Apply(t.Context(), manifests)
	must(t, "apply the objects", err)
	_, err = cluster.Settle(t.Context(), nil)
	must(t, "wait for the objects", err)
	// Confirm reconciles each object once more: refused objects must stay refused.
	rows, err := cluster.Confirm(t.Context())
	must(t, "wait for the objects", err)
	rows = slices.DeleteFunc(rows, func(row report.Row) bool { return row.Namespace != ownerNamespace && row.Namespace != thiefNamespace })
	for _, row := range rows {
		if !row.OK() {
			t.Errorf("%s %s/%s: want %s, it is %s %s: %s", row.Kind, row.Namespace, row.Name, row.Expected, row.Result, row.Reason, row.Message)
		}
		cloud, _, _ := strings.Cut(row.Name, "-")
		if subject := identitySubject(thiefNamespace, cloud); row.Namespace == thiefNamespace && !strings.Contains(row.Message, subject) {
			t.Errorf("the message of %s %s does not name the refused subject %s: %s", row.Kind, row.Name, subject, row.Message)
		}
	}
	if fetching := kinds.All().Where(kinds.Kind.Fetches); len(rows) != len(fetching)*len(clouds)*2 {
		t.Errorf("there are %d rows; want %v at three clouds of two tenants", len(rows), fetching.Names())
	}
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Verdict: journal.Granted, After: begin}) {
		// Ignore Google's STS: it accepts every token of the pool's provider, and returns a token
		// without permissions.
		if strings.Contains(call.Subject+call.Principal, thiefNamespace) && call.Host != "sts.googleapis.com" {
			t.Errorf("the thief was granted something: %+v", call)
		}
	}
}

// identityAtAWS creates a role that trusts the owner's identity. It also creates a repository and a
// bucket that the role may read. It returns a Replacer for the placeholders in identityManifests.
// The functions below do the same at the other clouds.
func identityAtAWS(t *testing.T) *strings.Replacer {
	t.Helper()
	cloud, repository := world.Cloud().AWS(), ownerNamespace+"/app"
	must(t, "trust the issuer", cloud.PutOIDCProvider(local.Account, aws.OIDCProvider{URL: ownIssuer, ClientIDs: []string{stsAudience}}))
	must(t, "make a repository", cloud.PutRepository(local.Account, aws.Repository{Region: local.Region, Name: repository}))
	plane, err := dataplane.S3(identityBucket)
	must(t, "start a store", err)
	serveS3(t, plane, identityBucket)
	must(t, "make a bucket", cloud.PutBucket(local.Account, aws.Bucket{Region: local.Region, Name: identityBucket}))
	for key, content := range some(identityBucket) {
		putInto(t, plane, "/"+identityBucket+"/"+(&url.URL{Path: key}).EscapedPath(), content, nil)
	}
	must(t, "make a role", cloud.PutRole(local.Account, aws.Role{
		Name: ownerNamespace, TrustPolicy: trustIn(ownIssuer, identitySubject(ownerNamespace, "aws")),
		Policies: policies(statements(append(readS3(identityBucket, ""), `{"Effect":"Allow","Action":"ecr:GetAuthorizationToken","Resource":"*"}`,
			fmt.Sprintf(`{"Effect":"Allow","Action":["ecr:BatchGetImage","ecr:GetDownloadUrlForLayer","ecr:BatchCheckLayerAvailability","ecr:ListImages"],
				"Resource":"arn:aws:ecr:%s:%s:repository/%s"}`, local.Region, local.Account, repository))...)),
	}))
	return strings.NewReplacer("CLOUD", "aws", "AUDIENCE", stsAudience, "REPOSITORY", registryHost+"/"+repository,
		"BUCKET", "bucketName: "+identityBucket, "CONFIG", "{iamRoleARN: '"+roleARN(ownerNamespace)+"'}")
}

func identityAtAzure(t *testing.T) *strings.Replacer {
	t.Helper()
	cloud, application := world.Cloud().Azure(), string(uuid.NewUUID())
	must(t, "make an application", cloud.PutApplication(local.AzureTenant, azure.Application{
		ClientID:             application,
		FederatedCredentials: []azure.FederatedCredential{{Name: ownerNamespace, Issuer: ownIssuer, Subject: identitySubject(ownerNamespace, "azure")}},
	}))
	must(t, "make a registry", cloud.PutRegistry(local.AzureTenant, azure.RegistryConfig{
		Name: identityRegistry, RoleAssignments: []azure.RegistryRole{{ClientID: application, Role: "AcrPull"}},
	}))
	putContainers(t, identityStorage, []azure.StorageRole{{ClientID: application, Role: "Storage Blob Data Reader", Container: identityBucket}})
	return strings.NewReplacer("CLOUD", "azure", "AUDIENCE", azureAudience, "REPOSITORY", identityRegistry+".azurecr.io/app",
		"BUCKET", "bucketName: "+identityBucket+", endpoint: "+identityStorage+".blob.core.windows.net",
		"CONFIG", fmt.Sprintf("{clientID: %s, tenantID: %s}", application, local.AzureTenant))
}

func identityAtGoogle(t *testing.T) *strings.Replacer {
	t.Helper()
	const provider = "projects/987654321098/locations/global/workloadIdentityPools/" + identityPool + "/providers/lanyard"
	cloud, account := world.Cloud().GCP(), ownerNamespace+"@"+googleProject+".iam.gserviceaccount.com"
	must(t, "trust the issuer", cloud.PutPool(googleProject, gcp.Pool{ID: identityPool, Providers: []gcp.Provider{{
		ID: "lanyard", IssuerURI: ownIssuer, AttributeMapping: map[string]string{"google.subject": "assertion.sub"},
	}}}))
	must(t, "make a service account", cloud.PutServiceAccount(googleProject, gcp.ServiceAccount{
		Email: account,
		Bindings: []gcp.Binding{{
			Role: "roles/iam.workloadIdentityUser", Members: []string{googleIAM + identityPool + "/subject/" + identitySubject(ownerNamespace, "gcp")},
		}},
	}))
	must(t, "make a repository", cloud.PutRepository(googleProject, gcp.Repository{
		Location: googleRegion, Name: ownerNamespace,
		Bindings: []gcp.Binding{{Role: "roles/artifactregistry.reader", Members: []string{"serviceAccount:" + account}}},
	}))
	lend(t, "serviceAccount:"+account)
	return strings.NewReplacer("CLOUD", "gcp", "AUDIENCE", "https://iam.googleapis.com/"+provider,
		"REPOSITORY", googleRegion+"-docker.pkg.dev/"+googleProject+"/"+ownerNamespace+"/app",
		"BUCKET", "bucketName: "+e2eBucket, "CONFIG", fmt.Sprintf("{workloadIdentityProvider: %s, serviceAccountEmail: %s}", provider, account))
}
