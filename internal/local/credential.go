package local

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lanyard-dev/lanyard/internal/wholefile"
)

const (
	// tokenLife is the lifetime of a ServiceAccount token. A kubelet requests the same lifetime.
	tokenLife = time.Hour
	// renewAfter is the time after which a token is replaced. Clients read the token's file again
	// each minute. So they have the new token before the old token expires.
	renewAfter = tokenLife / 2
	// renewRetry is the pause after a renewal that failed.
	renewRetry = 10 * time.Second
)

// tokenFile is a file with a ServiceAccount's token. It renews the token like a kubelet does for a
// Pod. The program's kubeconfig refers to the file.
type tokenFile struct {
	kubeconfig string

	path, account string
	cluster       *Cluster
	cancel        context.CancelFunc
	ended         sync.WaitGroup
}

// newTokenFile writes the first token and the kubeconfig into dir. It renews the token until close
// is called.
func (c *Cluster) newTokenFile(ctx context.Context, account, dir string) (*tokenFile, error) {
	t := &tokenFile{
		kubeconfig: filepath.Join(dir, "kubeconfig"), path: filepath.Join(dir, "token"), account: account, cluster: c,
	}
	if err := t.renew(ctx); err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthority: c.serverCA}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{TokenFile: t.path}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: account, Namespace: Namespace}
	config.CurrentContext = "local"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", account, err)
	}
	if err := wholefile.Write(t.kubeconfig, data); err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", account, err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	t.ended.Go(func() { t.run(life) })
	return t, nil
}

func (t *tokenFile) run(ctx context.Context) {
	wait := renewAfter
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if wait = renewAfter; t.renew(ctx) != nil {
			// Do not report the error: the old token is valid for another half of its life. If no
			// renewal succeeds by then, the program itself logs that requests fail.
			wait = renewRetry
		}
	}
}

func (t *tokenFile) renew(ctx context.Context) error {
	seconds := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := t.cluster.typed.CoreV1().ServiceAccounts(Namespace).
		CreateToken(ctx, t.account, request, metav1.CreateOptions{FieldManager: FieldManager})
	if err != nil {
		return fmt.Errorf("request a token of ServiceAccount %s/%s: %w", Namespace, t.account, err)
	}
	if answer.Status.Token == "" {
		return errors.New("the API server answered a TokenRequest without a token")
	}
	if err := wholefile.Write(t.path, []byte(answer.Status.Token)); err != nil {
		return fmt.Errorf("write the token of %s: %w", t.account, err)
	}
	return nil
}

// close ends the renewal. It is safe to call twice, and on nil.
func (t *tokenFile) close() {
	if t == nil {
		return
	}
	t.cancel()
	t.ended.Wait()
}
