package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
	"github.com/lanyard-dev/lanyard/test/e2e/dataplane"
)

// assumeAnnotation makes a ServiceAccount assume a second role with the session of its own role.
const assumeAnnotation = "lanyard.dev/assume-role"

// mayAssume changes the policies of the tenant's role, so that it may only assume roles.
func (tn *tenant) mayAssume(t *testing.T) {
	t.Helper()
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, aws.Role{
		Name: tn.namespace, TrustPolicy: trust(tn.subject), Policies: policies(statements(`{"Effect":"Allow","Action":"sts:AssumeRole","Resource":"*"}`)),
	}))
}

// TestOwnChain reads a tenant's registry and bucket in a second account. The tenant configures its
// own chain: its role, and a second role that trusts the first. Another tenant configures the same
// chain, and must be refused.
func TestOwnChain(t *testing.T) {
	beside(t)
	const bucketName = "e2e-own-chain"
	a, b := newTenant(t, "chain-a"), newTenant(t, "chain-b")
	a.mayAssume(t)
	b.mayAssume(t)
	must(t, "make a bucket", world.Cloud().AWS().PutBucket(workloadAccount, aws.Bucket{Region: local.Region, Name: bucketName}))
	must(t, "make a role", world.Cloud().AWS().PutRole(workloadAccount, aws.Role{
		Name: "of-chain-a", TrustPolicy: []byte(statements(fmt.Sprintf(
			`{"Effect":"Allow","Principal":{"AWS":%q},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":"agreed-upon"}}}`, a.role))),
		Policies: policies(statements(append(readS3(bucketName, ""),
			`{"Effect":"Allow","Action":"ecr:*","Resource":"*"}`)...)),
	}))
	plane, err := dataplane.S3(bucketName)
	must(t, "start a store", err)
	serveS3(t, plane, bucketName)
	for key, content := range some("chain") {
		putInto(t, plane, "/"+bucketName+"/"+(&url.URL{Path: key}).EscapedPath(), content, nil)
	}
	digest := publish(t, chainedURL, "own", layer(t, file("app.yaml", "own")), publisher(t))
	reader := "arn:aws:iam::" + workloadAccount + ":role/of-chain-a"
	annotated := func(tn *tenant, value string) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tn.namespace, Name: puller}}
		patch(t, account, func(o *corev1.ServiceAccount) { o.Annotations[assumeAnnotation] = value })
	}
	annotated(a, reader+" externalID=agreed-upon")
	annotated(b, reader+" externalID=agreed-upon")
	begin := world.Cloud().Journal().Last()
	repository := func(tn *tenant) *v1alpha1.OCIRepository {
		o := tn.object("chain")
		o.Spec.URL, o.Spec.Ref.Tag = chainedURL, "own"
		create(t, o)
		return o
	}
	pulled, read := repository(a), a.bucket("chain", v1alpha1.ProviderAWS, bucketName)
	create(t, read)
	await(t, pulled, "it is pulled", revision(digest))
	await(t, read, "it is read", holding(t, some("chain")))
	if id := pulled.Status.Identity; id == nil || id.Subject != a.subject || id.CloudIdentity != reader {
		t.Errorf("the identity is %+v", id)
	}

	thief := repository(b)
	await(t, thief, "the role does not trust it", failing("TrustRefused", "of-chain-a", b.namespace))
	if strings.Contains(ready(thief).Message, "agreed-upon") {
		t.Errorf("the condition shows the external ID: %s", ready(thief).Message)
	}
	annotated(a, reader) // this chain has no external ID
	await(t, pulled, "the external ID is part of the chain", failing("TrustRefused", "external ID"))
	annotated(a, "reader")
	await(t, pulled, "the value is refused", failing("IdentityInvalid", assumeAnnotation))
	for _, call := range world.Cloud().Journal().Calls(journal.Filter{Verdict: journal.Granted, After: begin}) {
		if call.Operation == "AssumeRole" && call.Role == reader && !strings.Contains(call.Principal, ":assumed-role/"+a.namespace+"/") {
			t.Errorf("%s assumed a's role: %+v", call.Principal, call)
		}
	}
}
