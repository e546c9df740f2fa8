package delivery_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	dockerconfig "github.com/docker/cli/cli/config"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/internal/delivery"
	"github.com/lanyard-dev/lanyard/internal/issuer/issuertest"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// decode returns the targetSystem in a row of [issuertest.Rows].
func decode(t *testing.T, row issuertest.Row) identityv1.TargetSystem {
	t.Helper()
	spec, _ := row.Object()["spec"].(map[string]any)
	fields, _ := spec["targetSystem"].(map[string]any)
	var target identityv1.TargetSystem
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &target))
	return target
}

func fieldsOf(t *testing.T, config string) map[string]string {
	t.Helper()
	var fields map[string]string
	must.Succeed(t, json.Unmarshal([]byte(config), &fields))
	return fields
}

func encode(t *testing.T, fields map[string]string) string {
	t.Helper()
	data, err := json.Marshal(fields)
	must.Succeed(t, err)
	return string(data)
}

// rendered returns the data of the Secret; nil if Render refuses the input. Other tests check
// refusals.
func rendered(in delivery.Input) map[string]string {
	content, err := delivery.Render(in)
	if err != nil {
		return nil
	}
	data := map[string]string{}
	for key, value := range content.Data {
		data[key] = string(value)
	}
	return data
}

// want compares a value that a parser has read with the wanted value.
func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// sharedConfig returns the settings that the AWS SDK reads from a config and a credentials file.
func sharedConfig(t *testing.T, configFile, credentialsFile string) config.SharedConfig {
	t.Helper()
	got, err := config.LoadSharedConfigProfile(t.Context(), "default", func(o *config.LoadSharedConfigOptions) {
		o.ConfigFiles, o.CredentialsFiles = []string{file(t, configFile)}, []string{file(t, credentialsFile)}
	})
	if err != nil {
		t.Fatalf("%v in %s%s", err, configFile, credentialsFile)
	}
	return got
}

// FuzzAWS checks what the AWS SDK reads from the config file: only the role, the region and the
// path of the token's file.
func FuzzAWS(f *testing.F) {
	f.Add("arn:aws:iam::112233445566:role/team/dns", "eu-west-1", "/mnt")
	f.Add(`arn:aws:iam::112233445566:role/a"b'c;d#e=[f]%\/x`, "", "")
	f.Add("arn:aws:iam::112233445566:role/a\ncredential_process=x", "us-gov-west-1", "/a\nb")
	f.Add("arn:aws:iam::112233445566:role/a", "eu-west-1 # x", "/a;b")
	f.Fuzz(func(t *testing.T, role, region, mount string) {
		fields := map[string]string{"iamRoleARN": role}
		if region != "" {
			fields["region"] = region
		}
		in := input("aws", encode(t, fields))
		in.MountPath = mount
		data := rendered(in)
		if data == nil {
			return
		}
		if mount == "" {
			mount = delivery.DefaultMountPath
		}
		got := sharedConfig(t, data["config"], "")
		want(t, "role", got.RoleARN, role)
		want(t, "token's file", got.WebIdentityTokenFile, mount+"/workloadIdentityToken")
		want(t, "region", got.Region, region)
		want(t, "program", got.CredentialProcess, "")
		if strings.Count(data["config"], "\n") != len(fields)+2 {
			t.Errorf("the file has other lines: %s", data["config"])
		}
		want(t, "AWS_ROLE_ARN", data["AWS_ROLE_ARN"], role)
		want(t, "AWS_WEB_IDENTITY_TOKEN_FILE", data["AWS_WEB_IDENTITY_TOKEN_FILE"], mount+"/workloadIdentityToken")
		want(t, "AWS_REGION", data["AWS_REGION"], region)
	})
}

// FuzzSession checks that the AWS SDK reads only the keys and the region from the credentials file.
func FuzzSession(f *testing.F) {
	f.Add("ASIAEXAMPLE", "a/secret+key=", "IQoJ/token==", "eu-west-1")
	f.Add("A", "a\nb", "c", "")
	f.Add("A", `"a"`, `;c#\d%[e]=`, "")
	f.Fuzz(func(t *testing.T, id, secret, token, region string) {
		data := rendered(delivery.Input{Format: identityv1.StoreAWSSessionKeys, Session: &delivery.Session{
			AccessKeyID: auth.NewSecret(id), SecretAccessKey: auth.NewSecret(secret), SessionToken: auth.NewSecret(token), Region: region,
			ExpiresAt: time.Unix(1, 0),
		}})
		if data == nil {
			return
		}
		got := sharedConfig(t, "", data["credentials"])
		want(t, "key's ID", got.Credentials.AccessKeyID, id)
		want(t, "secret", got.Credentials.SecretAccessKey, secret)
		want(t, "token", got.Credentials.SessionToken, token)
		want(t, "region", got.Region, region)
		want(t, "program", got.CredentialProcess, "")
		want(t, "AWS_SECRET_ACCESS_KEY", data["AWS_SECRET_ACCESS_KEY"], secret)
		want(t, "AWS_CREDENTIAL_EXPIRATION", data["AWS_CREDENTIAL_EXPIRATION"], "1970-01-01T00:00:01Z")
	})
}

// googleServer answers like Google's STS and IAM Credentials, and records the requests.
type googleServer struct{ asked []string }

// RoundTrip grants everything.
func (g *googleServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	g.asked = append(g.asked, r.URL.String()+" "+string(body))
	answer := `{"access_token":"a","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600,"accessToken":"b","expireTime":"2100-01-01T00:00:00Z"}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
}

// FuzzGCP checks the requests of Google's library. The library must exchange the token in the
// Secret's file at Google's STS. If the identity names a service account, the library must
// impersonate it. The library must send no other request.
func FuzzGCP(f *testing.F) {
	f.Add("projects/123456/locations/global/workloadIdentityPools/pool/providers/lanyard", "puller@tenant-a.iam.gserviceaccount.com")
	f.Add("https://iam.googleapis.com/projects/123456/locations/global/workloadIdentityPools/pool/providers/lanyard", "puller@tenant-a.s3ns.iam.gserviceaccount.com")
	f.Add("projects/1/locations/global/workloadIdentityPools/pool/providers/a\"b", "")
	f.Add("projects/1/locations/global/workloadIdentityPools/pool/providers/lanyard", "a@b/../c.iam.gserviceaccount.com")
	f.Fuzz(func(t *testing.T, provider, account string) {
		fields := map[string]string{"workloadIdentityProvider": provider}
		if account != "" {
			fields["serviceAccountEmail"] = account
		}
		data := rendered(input("gcp", encode(t, fields)))
		if data == nil {
			return
		}
		want(t, "GOOGLE_APPLICATION_CREDENTIALS", data["GOOGLE_APPLICATION_CREDENTIALS"], delivery.DefaultMountPath+"/credentials.json")
		mounted := strings.ReplaceAll(data["credentials.json"], delivery.DefaultMountPath+"/workloadIdentityToken", file(t, data[delivery.TokenKey]))
		parsed, err := endpoint.ParseGCPWorkloadProvider(provider)
		must.Succeed(t, err)
		universe := "googleapis.com"
		wanted := []string{}
		if account != "" {
			email, err := endpoint.ParseGCPServiceAccount(account)
			must.Succeed(t, err)
			universe = email.Universe
			wanted = append(wanted, "https://iamcredentials."+universe+"/v1/projects/-/serviceAccounts/"+email.Email+":generateAccessToken")
		}
		wanted = append([]string{"https://sts." + universe + "/v1/token"}, wanted...)

		server := &googleServer{}
		ctx := context.WithValue(t.Context(), oauth2.HTTPClient, &http.Client{Transport: server})
		credentials, err := google.CredentialsFromJSONWithType(ctx, []byte(mounted), google.ExternalAccount, "https://www.googleapis.com/auth/cloud-platform")
		must.Succeed(t, err)
		if _, err := credentials.TokenSource.Token(); err != nil {
			t.Fatal(err)
		}
		if len(server.asked) != len(wanted) {
			t.Fatalf("the library asked %q, want %q", server.asked, wanted)
		}
		for n, address := range wanted {
			asked, body, _ := strings.Cut(server.asked[n], " ")
			want(t, "URL", asked, address)
			if n == 0 {
				form, err := url.ParseQuery(body)
				must.Succeed(t, err)
				want(t, "audience", form.Get("audience"), parsed.FullName())
				want(t, "subject_token", form.Get("subject_token"), jwt)
				want(t, "subject_token_type", form.Get("subject_token_type"), "urn:ietf:params:oauth:token-type:jwt")
			}
		}
	})
}

// FuzzKubernetes checks what client-go reads from the kubeconfig: only the server, its certificates
// and the path of the token's file.
func FuzzKubernetes(f *testing.F) {
	ca := authority(f)
	f.Add("https://api.example.com:6443", ca, "/mnt")
	f.Add("https://[::1]:6443/clusters/a", "", "")
	f.Add("https://a\nusers: []", ca, "")
	f.Add("https://a: b", "e30K", "/a: {b}")
	f.Fuzz(func(t *testing.T, server, ca, mount string) {
		fields := map[string]string{"server": server}
		if ca != "" {
			fields["certificateAuthorityData"] = ca
		}
		in := input("kubernetes", encode(t, fields))
		in.MountPath = mount
		data := rendered(in)
		if data == nil {
			return
		}
		if mount == "" {
			mount = delivery.DefaultMountPath
		}
		got, err := clientcmd.Load([]byte(data["kubeconfig"]))
		must.Succeed(t, err)
		if len(got.Clusters) != 1 || len(got.AuthInfos) != 1 || len(got.Contexts) != 1 || len(got.Extensions) != 0 {
			t.Fatalf("the kubeconfig has %+v", got)
		}
		current := got.Contexts[got.CurrentContext]
		cluster, user := got.Clusters[current.Cluster], got.AuthInfos[current.AuthInfo]
		want(t, "server", cluster.Server, server)
		want(t, "certificates", base64.StdEncoding.EncodeToString(cluster.CertificateAuthorityData), ca)
		want(t, "token's file", user.TokenFile, mount+"/workloadIdentityToken")
		if user.Exec != nil || user.AuthProvider != nil || user.Token != "" || user.Impersonate != "" || cluster.InsecureSkipTLSVerify || cluster.ProxyURL != "" {
			t.Errorf("the kubeconfig says more: %s", data["kubeconfig"])
		}
		want(t, "KUBECONFIG", data["KUBECONFIG"], mount+"/kubeconfig")
	})
}

// FuzzDockerConfig checks that Docker's own parser finds exactly the rendered logins.
func FuzzDockerConfig(f *testing.F) {
	f.Add("registry.example.com/app", "AWS", "password", "registry.example.com/base", "other")
	f.Add("registry.example.com:5000/a/b", "a", `"}}`, "other.example.com/a", "x")
	f.Add("registry.example.com/a\n", "a:b", "c", "x/y", "d")
	f.Fuzz(func(t *testing.T, repository, user, password, second, other string) {
		logins := []delivery.Login{login(repository, user, password), login(second, user, other)}
		data := rendered(delivery.Input{Format: identityv1.StoreDockerConfigJSON, Logins: logins})
		if data == nil {
			return
		}
		got, err := dockerconfig.LoadFromReader(strings.NewReader(data[".dockerconfigjson"]))
		must.Succeed(t, err)
		wanted := map[string]string{repository: password, second: other}
		host, _, _ := strings.Cut(repository, "/")
		if secondHost, _, _ := strings.Cut(second, "/"); host != secondHost {
			wanted = map[string]string{host: password, secondHost: other}
		} else if password == other {
			wanted = map[string]string{host: password}
		}
		found := map[string]string{}
		for at, entry := range got.AuthConfigs {
			want(t, "user", entry.Username, user)
			found[at] = entry.Password
		}
		if !maps.Equal(found, wanted) {
			t.Errorf("the logins are %q, want %q", found, wanted)
		}
	})
}

// FuzzVault checks that the body of the login has only the role and the token, for any role name.
func FuzzVault(f *testing.F) {
	f.Add("https://vault.example.com:8200", "jwt", "dns")
	f.Add("https://vault.example.com", "a/b", `a","jwt":"x`)
	f.Fuzz(func(t *testing.T, address, mount, role string) {
		data := rendered(input("vault", encode(t, map[string]string{"address": address, "mount": mount, "role": role})))
		if data == nil {
			return
		}
		var login map[string]string
		decoder := json.NewDecoder(bytes.NewReader([]byte(data["login.json"])))
		if err := decoder.Decode(&login); err != nil || !maps.Equal(login, map[string]string{"role": role, "jwt": jwt}) {
			t.Errorf("the login is %q, %v", login, err)
		}
		want(t, "VAULT_ADDR", data["VAULT_ADDR"], address)
	})
}
