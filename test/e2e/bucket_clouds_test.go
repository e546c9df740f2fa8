package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// bucketRole creates a role with these policy statements. A ServiceAccount of the tenant may assume
// the role.
func (tn *tenant) bucketRole(t *testing.T, role, account string, allow ...string) (arn string) {
	t.Helper()
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: role, TrustPolicy: trust("system:serviceaccount:" + tn.namespace + ":" + account), Policies: policies(statements(allow...)),
	}))
	return roleARN(role)
}

// readS3 returns policy statements that allow listing and reading the objects of a bucket: all
// objects, or those with a prefix.
func readS3(bucket, prefix string) []string {
	condition := ""
	if prefix != "" {
		condition = fmt.Sprintf(`,"Condition":{"StringEquals":{"s3:prefix":%q}}`, prefix)
	}
	return []string{
		fmt.Sprintf(`{"Effect":"Allow","Action":"s3:ListBucket","Resource":"arn:aws:s3:::%s"%s}`, bucket, condition),
		fmt.Sprintf(`{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/%s*"}`, bucket, prefix),
	}
}

// TestBucketAtS3 makes two tenants read their own buckets at Amazon S3. One tenant tries to read
// the other's bucket, and must be refused.
func TestBucketAtS3(t *testing.T) {
	beside(t)
	const abroad = "eu-central-1"
	a, b := newTenant(t, "s3-a"), newTenant(t, "s3-b")
	plane, err := dataplane.S3("e2e-s3-a", "e2e-s3-b", "e2e-s3-abroad")
	must(t, "start a store", err)
	serveS3(t, plane, "e2e-s3-a", "e2e-s3-b", "e2e-s3-abroad")
	for bucket, region := range map[string]string{"e2e-s3-a": local.Region, "e2e-s3-b": local.Region, "e2e-s3-abroad": abroad} {
		must(t, "make a bucket", world.Cloud().AWS().PutBucket(local.Account, aws.Bucket{Region: region, Name: bucket}))
		for key, content := range some(bucket) {
			putInto(t, plane, "/"+bucket+"/"+(&url.URL{Path: key}).EscapedPath(), content, nil)
		}
	}
	a.bucketRole(t, a.namespace, puller, append(readS3("e2e-s3-a", ""), readS3("e2e-s3-abroad", "")...)...)
	b.bucketRole(t, b.namespace, puller, readS3("e2e-s3-b", "")...)
	a.putAccount(t, "limited", a.bucketRole(t, "s3-a-limited", "limited", readS3("e2e-s3-a", "config/")...))
	begin := world.Cloud().Journal().Last()

	limited := func(name, prefix string) *v1alpha1.Bucket {
		o := a.bucket(name, v1alpha1.ProviderAWS, "e2e-s3-a")
		o.Spec.ServiceAccountName, o.Spec.Prefix = "limited", prefix
		return o
	}
	at := func(o *v1alpha1.Bucket, endpoint, region string) *v1alpha1.Bucket {
		o.Spec.Endpoint, o.Spec.Region = endpoint, region
		return o
	}
	thief := b.bucket("as-a", v1alpha1.ProviderAWS, "e2e-s3-a")
	thief.Spec.ServiceAccountName = "thief"
	b.putAccount(t, "thief", a.role)
	below := some("e2e-s3-a")
	delete(below, "app.yaml")
	judge(t, []bucketCase{
		{"own bucket of a", a.bucket("own", v1alpha1.ProviderAWS, "e2e-s3-a"), holding(t, some("e2e-s3-a"))},
		{"own bucket of b", b.bucket("own", v1alpha1.ProviderAWS, "e2e-s3-b"), holding(t, some("e2e-s3-b"))},
		{"by the region's host", at(a.bucket("host", v1alpha1.ProviderAWS, "e2e-s3-a"), "s3."+local.Region+".amazonaws.com", ""), holding(t, some("e2e-s3-a"))},
		{"of another region", at(a.bucket("region", v1alpha1.ProviderAWS, "e2e-s3-abroad"), "", abroad), holding(t, some("e2e-s3-abroad"))},
		{"the prefix of a policy", limited("limited", "config/"), holding(t, below)},
		{"all of a policy's prefix", limited("unlimited", ""), unfetched("BucketRefused", roleARN("s3-a-limited"), "AccessDenied", "list the bucket")},
		{"bucket of a", b.bucket("foreign", v1alpha1.ProviderAWS, "e2e-s3-a"), unfetched("BucketRefused", b.role, "AccessDenied")},
		{"role of a", thief, unfetched("TrustRefused", a.role, "system:serviceaccount:s3-b:thief")},
		{"wrong region", a.bucket("wrong-region", v1alpha1.ProviderAWS, "e2e-s3-abroad"), unfetched("BucketRefused", "spec.region", "set it to "+abroad)},
		{"no bucket", a.bucket("none", v1alpha1.ProviderAWS, "e2e-s3-none"), unfetched("BucketRefused", "spec.bucketName", "NoSuchBucket")},
		{"look-alike", at(a.bucket("lookalike", v1alpha1.ProviderAWS, "e2e-s3-a"), "s3."+local.Region+".amazonaws.com.evil.example", ""), unfetched("EndpointRefused", "spec.endpoint")},
	})
	own := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "own"}}
	await(t, own, "the identity", func(o *v1alpha1.Bucket) error {
		id := o.Status.Identity
		return wantf(id != nil && id.Subject == a.subject && id.CloudIdentity == a.role && id.Provider == v1alpha1.ProviderAWS, "it is %+v", id)
	})
	// Tenant B must have had no access to A's bucket in any way.
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Service: "s3", Verdict: journal.Granted, After: begin}) {
		if strings.Contains(call.Resource, "e2e-s3-a") && !strings.Contains(call.Principal, ":assumed-role/s3-a") {
			t.Errorf("%s got at a's bucket: %+v", call.Principal, call)
		}
	}
	wantUncalled(t, begin, ".evil.example")
}

// bucketCase is a Bucket with its expected outcome.
type bucketCase struct {
	name string
	o    *v1alpha1.Bucket
	want func(o *v1alpha1.Bucket) error
}

// judge creates all Buckets, and waits for the expected outcome of each.
func judge(t *testing.T, cases []bucketCase) {
	t.Helper()
	for _, c := range cases {
		create(t, c.o)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			await(t, c.o, "the outcome", c.want)
			if ready(c.o).Status == metav1.ConditionFalse && c.o.Status.Artifact != nil {
				t.Errorf("it has the artifact %+v", c.o.Status.Artifact)
			}
		})
	}
}

// wantUncalled asserts that nobody called a host with this ending. It ignores calls up to the given
// journal number.
func wantUncalled(t *testing.T, after uint64, ending string) {
	t.Helper()
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{After: after}) {
		if strings.HasSuffix(call.Host, ending) {
			t.Errorf("a host that only looks like the cloud's was called: %+v", call)
		}
	}
}

// containers creates a storage account at Azure with a container for each tenant. Each container
// has some files, which Azurite stores. For each tenant, containers also creates an application,
// which may read the tenant's container. The tenant's ServiceAccount can log in as the application.
// The result has the application's client ID for each tenant.
func containers(t *testing.T, storage string, tenants ...*tenant) (applications map[*tenant]string) {
	t.Helper()
	applications = map[*tenant]string{}
	var assignments []azure.StorageRole
	for _, tn := range tenants {
		application := string(uuid.NewUUID())
		applications[tn] = application
		must(t, "make an application", world.Cloud().Azure().PutApplication(local.AzureTenant, azure.Application{
			ClientID:             application,
			FederatedCredentials: []azure.FederatedCredential{{Name: tn.namespace, Issuer: local.Issuer, Subject: tn.subject}},
		}))
		tn.annotate(t, clientAnnotation, application)
		assignments = append(assignments, azure.StorageRole{ClientID: application, Role: "Storage Blob Data Reader", Container: tn.namespace})
	}
	putContainers(t, storage, assignments)
	return applications
}

// putContainers creates a storage account with the containers that the assignments refer to. Each
// container has some files, which Azurite stores.
func putContainers(t *testing.T, storage string, assignments []azure.StorageRole) {
	t.Helper()
	must(t, "make a storage account", world.Cloud().Azure().PutStorageAccount(local.AzureTenant, azure.StorageAccountConfig{Name: storage, RoleAssignments: assignments}))
	azurite, err := dataplane.StartAzurite(t.Context(), storage)
	must(t, "start Azurite", err)
	t.Cleanup(azurite.Close)
	serveBlob(t, azurite.Blob(storage), storage)
	header, host := http.Header{"X-Ms-Version": {"2024-11-04"}, "X-Ms-Blob-Type": {"BlockBlob"}}, storage+".blob.core.windows.net"
	for _, assigned := range assignments {
		putInto(t, azurite.Blob(storage), "https://"+host+"/"+assigned.Container+"?restype=container", "", header)
		for key, content := range some(assigned.Container) {
			putInto(t, azurite.Blob(storage), (&url.URL{Scheme: "https", Host: host, Path: "/" + assigned.Container + "/" + key}).String(), content, header)
		}
	}
}

// TestBucketAtAzure makes two tenants read their own containers of Azure Blob Storage. One tenant
// tries to read the other's container, and must be refused. Azurite stores the files.
func TestBucketAtAzure(t *testing.T) {
	beside(t)
	const storage = "lanyarde2e"
	host := storage + ".blob.core.windows.net"
	a, b := newTenant(t, "blob-a"), newTenant(t, "blob-b")
	applications := containers(t, storage, a, b)
	begin := world.Cloud().Journal().Last()

	container := func(tn *tenant, name, container string) *v1alpha1.Bucket {
		o := tn.bucket(name, v1alpha1.ProviderAzure, container)
		o.Spec.Endpoint = host
		return o
	}
	below := container(a, "below", a.namespace)
	below.Spec.Prefix = "config/"
	files := some(a.namespace)
	delete(files, "app.yaml")
	thief := container(b, "as-a", a.namespace)
	thief.Spec.ServiceAccountName = "thief"
	create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: b.namespace, Name: "thief", Annotations: map[string]string{clientAnnotation: applications[a]},
	}})
	lookalike := container(a, "lookalike", a.namespace)
	lookalike.Spec.Endpoint = host + ".evil.example"
	other := container(a, "other-account", a.namespace)
	other.Spec.Endpoint = "othere2e.blob.core.windows.net"
	judge(t, []bucketCase{
		{"own container of a", container(a, "own", a.namespace), holding(t, some(a.namespace))},
		{"own container of b", container(b, "own", b.namespace), holding(t, some(b.namespace))},
		{"a prefix", below, holding(t, files)},
		{"container of a", container(b, "foreign", a.namespace), unfetched("BucketRefused", applications[b], "AuthorizationPermissionMismatch")},
		{"application of a", thief, unfetched("TrustRefused", applications[a], "AADSTS700213", "system:serviceaccount:blob-b:thief")},
		{"look-alike", lookalike, unfetched("EndpointRefused", "spec.endpoint", "blob.core.windows.net")},
		{"another's storage account", other, func(o *v1alpha1.Bucket) error {
			c := ready(o)
			return wantf(c.Status == metav1.ConditionFalse && strings.HasPrefix(c.Reason, "Bucket"), "it is %s %s: %s", c.Status, c.Reason, c.Message)
		}},
	})
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Service: "blob", Verdict: journal.Granted, After: begin}) {
		if strings.Contains(call.Resource, a.namespace) && !strings.HasPrefix(call.Principal, applications[a]+"@") {
			t.Errorf("%s got at a's container: %+v", call.Principal, call)
		}
	}
	wantUncalled(t, begin, ".evil.example")
}
