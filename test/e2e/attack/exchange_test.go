package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	cloudaws "github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/journal"
	"github.com/lanyard-dev/lanyard/internal/local"
)

const (
	// chainAnnotation is the annotation of a ServiceAccount that names its second AWS role. Lanyard
	// assumes the second role with a session of the first role.
	chainAnnotation = "lanyard.dev/assume-role"
	// newRole is the AWS role that Lanyard assumes first for the honest tenant's new
	// ServiceAccounts. With a session of newRole, Lanyard assumes newChained, which may pull
	// images.
	newRole, newChained = "tenant-a-new", "tenant-a-new-ecr"
	// proxyDelay is how long the hostile tenant's proxy delays each piece of data from a client.
	proxyDelay = 2 * time.Second
)

// makeNewRoles creates the roles newRole and newChained in the local cloud's AWS.
func makeNewRoles(t *testing.T) {
	t.Helper()
	assume := allowing("sts:AssumeRole")
	pull := allowing("ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage",
		"ecr:GetDownloadUrlForLayer", "ecr:ListImages")
	chained := fmt.Sprintf(`{"Effect":"Allow","Principal":{"AWS":%q},"Action":"sts:AssumeRole"}`, roleOf(newRole))
	for _, role := range []cloudaws.Role{
		{
			Name:        newRole,
			TrustPolicy: policyOf(trustStatement(local.Issuer, "system:serviceaccount:"+honestNamespace+":"+newPrefix+"*")),
			Policies:    map[string]json.RawMessage{"chain": assume},
		},
		{Name: newChained, TrustPolicy: policyOf(chained), Policies: map[string]json.RawMessage{"pull": pull}},
	} {
		must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, role))
	}
}

func roleOf(name string) string { return "arn:aws:iam::" + local.Account + ":role/" + name }

// policyOf returns an IAM policy with the given statements.
func policyOf(statements ...string) json.RawMessage {
	return json.RawMessage(`{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`)
}

// trustStatement returns a statement for the trust policy of a role. With a token of the issuer, a
// client may assume the role if the token's subject matches the given subject. An asterisk in the
// given subject matches any text.
func trustStatement(issuer, subject string) string {
	host := strings.TrimPrefix(issuer, "https://")
	return fmt.Sprintf(`{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%s:oidc-provider/%s"},
		"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringLike":{"%s:sub":%q}}}`, local.Account, host, host, subject)
}

// allowing returns an IAM policy that allows the actions on all resources.
func allowing(actions ...string) json.RawMessage {
	list, _ := json.Marshal(actions) // no error: strings can always be encoded
	return policyOf(fmt.Sprintf(`{"Effect":"Allow","Action":%s,"Resource":"*"}`, list))
}

// chainAccount returns a ServiceAccount with two AWS roles. Lanyard first assumes the role in the
// parameter role. With this session, Lanyard assumes the role in the parameter chained. Sessions of
// other ServiceAccounts cannot be reused, so each new ServiceAccount causes new calls to AWS.
func chainAccount(namespace, name, role, chained string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{roleAnnotation: role, chainAnnotation: chained},
	}}
}

// startSlowProxy starts a proxy of a hostile tenant on this machine, and returns the proxy's
// address. The proxy forwards all data from clients to the local cloud's proxy, after proxyDelay.
// The proxy runs until the test process ends, because attacks need the proxy after ctx has ended.
func startSlowProxy(ctx context.Context) (address string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(ctx, conn)
		}
	}()
	return listener.Addr().String(), nil
}

// relay forwards data between a client of the slow proxy and the local cloud's proxy. It delays
// data from the client by proxyDelay, and ends when one side disconnects.
func relay(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(world.Cloud().ProxyURL(), "http://"))
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	piece := make([]byte, 64<<10)
	for {
		n, err := client.Read(piece)
		if err != nil {
			return
		}
		<-time.After(proxyDelay)
		if _, err := server.Write(piece[:n]); err != nil {
			return
		}
	}
}

// slowProxies acts as a tenant whose objects call AWS through a slow proxy of the tenant. The calls
// use a role of the same AWS account as the honest tenant's new OCIRepositories. AWS limits the
// calls of each account, so Lanyard limits its own calls too. The slow calls must not use up
// Lanyard's limit, because the honest tenant's calls would then wait.
func slowProxies(tn *tenant) {
	t := tn.t
	after := world.Cloud().Journal().Last()
	must(t, "make a role", world.Cloud().AWS().PutRole(local.Account, cloudaws.Role{
		Name: tn.namespace, Policies: map[string]json.RawMessage{"chain": allowing("sts:AssumeRole")},
		TrustPolicy: policyOf(trustStatement(local.Issuer, "system:serviceaccount:"+tn.namespace+"*")),
	}))
	var all []*v1alpha1.OCIRepository
	for _, in := range tn.in(manyNamespaces) {
		create(t, &corev1.Secret{ObjectMeta: in.meta("proxy"), StringData: map[string]string{"address": "http://" + slowProxy}})
		for i := range perNamespace {
			in.tried++
			account := chainAccount(in.namespace, fmt.Sprint("slow-", i), roleOf(tn.namespace), roleOf(tn.namespace+"-none"))
			create(t, account)
			o := in.repositoryAs(account.Name, v1alpha1.ProviderAWS, local.Account+".dkr.ecr."+local.Region+".amazonaws.com/tenant-b/app")
			o.Spec.ServiceAccountName, o.Spec.ProxySecretRef = account.Name, &meta.LocalReference{Name: "proxy"}
			o.Spec.Timeout = &metav1.Duration{Duration: maxTimeout}
			create(t, o)
			all = append(all, o)
		}
	}
	pause(t, 30*time.Second)
	calls := world.Cloud().Journal().Calls(journal.Filter{After: after})
	for who, role := range map[string]string{"hostile": roleOf(tn.namespace), "honest": roleOf(newChained)} {
		if !slices.ContainsFunc(calls, func(c journal.Call) bool { return c.Role == role }) {
			t.Errorf("no object of the %s tenant asked AWS for %s: this tests nothing", who, role)
		}
	}
	ended := 0
	for _, o := range all {
		must(t, "read an object", objects.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if c := condition(o); c.Status == metav1.ConditionFalse {
			ended++
			if ended == 1 {
				t.Logf("%s: %s", c.Reason, c.Message)
			}
		}
	}
	t.Logf("%d of %d exchanges ended", ended, len(all))
}
