package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/cloudtest/oidc"
	"github.com/lanyard-dev/lanyard/internal/controlplane"
	"github.com/lanyard-dev/lanyard/internal/kinds"
)

// Names and addresses in the demonstration's cloud and cluster.
const (
	// Issuer is the issuer of the cluster's ServiceAccount tokens. It looks like the issuer of an
	// EKS cluster.
	Issuer = "https://oidc.eks.eu-west-1.amazonaws.com/id/LANYARD0000000000000000000000DE"
	// TokenIssuer is the issuer URL for the demonstration's WorkloadIdentities: the chart's value
	// issuer.url. The local cloud answers requests for this URL.
	TokenIssuer = "https://issuer.lanyard.example" //nolint:gosec // a URL, no credential
	// Account is the AWS account of the demonstration.
	Account = "123456789123"
	// Region is the AWS region of the demonstration.
	Region = "eu-west-1"
	// AzureTenant is the default Azure tenant, for ServiceAccounts without a tenant of their own.
	// It is the controller's AZURE_TENANT_ID.
	AzureTenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	// Publisher is the IAM user that [Cloud.Push] uses.
	Publisher = "publisher"
	// ProgramUser is the IAM user of Lanyard's programs in the demonstration.
	ProgramUser = "lanyard"
	// Namespace is the namespace of the chart's release.
	Namespace = "lanyard-system"
	// FieldManager is the field manager of all objects that this package applies.
	FieldManager = "lanyard-up"
)

// ClusterOptions configure a cluster. Cloud and ControlPlane are required.
type ClusterOptions struct {
	// Cloud is the running cloud for the cluster. The cloud serves the issuer's documents, and its
	// folder holds the cluster's files.
	Cloud *Cloud
	// ControlPlane is the path of the program that `make build` builds from dev/controlplane.
	ControlPlane string
	// Name is the name of the cluster's folder, below clusters/ in the cloud's folder. Default: the
	// cluster uses the cloud's folder itself.
	Name string
	// Issuer is the issuer of the cluster's ServiceAccount tokens. Two clusters of a cloud need
	// issuers with different hosts. Default: [Issuer].
	Issuer string
	// AuthenticationConfig is the path of a Kubernetes AuthenticationConfiguration file with
	// further issuers whose tokens the API server accepts. The API server reaches these issuers
	// through the cloud. Each issuer needs the cloud's CA as its certificateAuthority. Optional.
	AuthenticationConfig string
	// Progress is called with one line per step of the start. Optional. Calls end before
	// StartCluster returns.
	Progress func(step string)
}

// Cluster is a running control plane and the chart's programs. It is safe for concurrent use.
type Cluster struct {
	cloud *Cloud
	dir   string // folder of the cluster's files
	plane *controlplane.ControlPlane
	logs  []*os.File

	server   string // the API server's URL
	serverCA string // path of the API server's CA certificate

	issuer    string          // issuer of ServiceAccount tokens
	published string          // host at which the cloud serves the issuer's documents
	documents *http.Transport // reads the issuer's documents at the API server

	config *rest.Config // of the administrator
	client client.Client
	typed  kubernetes.Interface

	// ended is closed when the control plane or a program ended although nobody stopped it.
	ended   chan struct{}
	endOnce sync.Once

	mu       sync.Mutex // guards chart, programs and edges
	chart    rendered
	programs []*Program
	edges    map[string]*edge // by host
}

// MissingBinaryError reports that there is no executable program at a path.
type MissingBinaryError struct {
	// Path is the path where the program should be.
	Path string
	// Flag is the command line flag that sets the program's path. It is empty if there is no such
	// flag.
	Flag string
	// Err is the reason why the program cannot run.
	Err error
}

// Error says how to build the program, and with which flag to set another path.
func (e *MissingBinaryError) Error() string {
	text := fmt.Sprintf("program %s: %v; run `make build` in Lanyard's repository and keep the programs of its bin/ in one folder",
		e.Path, e.Err)
	if e.Flag != "" {
		text += ", or say with " + e.Flag + " where the program is"
	}
	return text
}

// Unwrap returns why the program cannot be used.
func (e *MissingBinaryError) Unwrap() error { return e.Err }

// CheckBinary returns a *MissingBinaryError if there is no executable program at path. The error
// names flag, the command line flag that sets the program's path. The flag is empty if there is no
// such flag.
func CheckBinary(path, flag string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		// Drop the path of os.Stat's *fs.PathError: the message has the path already.
		err = errors.Unwrap(err)
	case info.IsDir():
		err = errors.New("is a folder")
	case info.Mode()&0o111 == 0:
		err = errors.New("is not executable")
	}
	if err != nil {
		return &MissingBinaryError{Path: path, Flag: flag, Err: err}
	}
	return nil
}

// StartCluster starts a control plane. The cloud then serves the public keys of ServiceAccount
// tokens at the host of [ClusterOptions.Issuer]. If ctx ends before StartCluster returns, the
// control plane is stopped again. Later, ctx has no effect: [Cluster.Stop] ends the cluster with
// its programs.
func StartCluster(ctx context.Context, o ClusterOptions) (_ *Cluster, err error) {
	if err := CheckBinary(o.ControlPlane, "--controlplane"); err != nil {
		return nil, err
	}
	c := &Cluster{
		cloud: o.Cloud, dir: o.Cloud.folder.path, issuer: cmp.Or(o.Issuer, Issuer), ended: make(chan struct{}), edges: map[string]*edge{},
	}
	if o.Name != "" {
		c.dir = o.Cloud.folder.join(clustersName, o.Name)
	}
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's folder: %w", err)
	}
	log, err := c.log(c.Path("controlplane" + logSuffix))
	if err != nil {
		return nil, err
	}
	c.plane, err = controlplane.Start(ctx, controlplane.Options{
		Binary: o.ControlPlane, Dir: c.Path(clusterName), Issuer: c.issuer, AuthenticationConfig: o.AuthenticationConfig,
		Env: o.Cloud.Env(), Log: log, Progress: progress,
	})
	if err != nil {
		return nil, err
	}
	c.server, c.serverCA = c.plane.Server(), c.plane.CAFile()
	go c.note(c.plane.Done(), c.plane.Err)
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.publishIssuer(ctx); err != nil {
		return nil, err
	}
	progress("cluster's keys are published at " + c.issuer)
	return c, nil
}

// scheme returns a scheme with all kinds that this package reads as Go types.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	err := errors.Join(corev1.AddToScheme(s), rbacv1.AddToScheme(s), kinds.All().AddToScheme(s))
	return s, err
}

func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.plane.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	config.UserAgent = FieldManager
	config.QPS = -1 // no client-side limit: API Priority and Fairness is enough on one machine
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	c.config = config
	s, err := scheme()
	if err != nil {
		return fmt.Errorf("make the scheme: %w", err)
	}
	if c.client, err = client.New(config, client.Options{Scheme: s}); err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	return nil
}

// publishIssuer lets everybody read the cluster's discovery documents, like an administrator who
// publishes an issuer. It then serves the documents in the cloud, under the issuer's host.
func (c *Cluster) publishIssuer(ctx context.Context) error {
	const role = "system:service-account-issuer-discovery" // source: Kubernetes, "Service account issuer discovery"
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: "public-service-account-issuer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:unauthenticated"}},
	}
	if err := c.client.Create(ctx, binding, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("let everybody read the cluster's discovery documents: %w", err)
	}
	upstream, err := url.Parse(c.server)
	if err != nil {
		return fmt.Errorf("read the API server's address: %w", err)
	}
	ca, err := os.ReadFile(c.serverCA)
	if err != nil {
		return fmt.Errorf("read the API server's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("the API server's CA %s holds no certificate", c.serverCA)
	}
	c.documents = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	handler, err := oidc.Proxy(c.issuer, upstream, c.documents)
	if err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	issuer, err := url.Parse(c.issuer)
	if err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	if err := c.cloud.publish(issuer.Host, handler); err != nil {
		return fmt.Errorf("publish the issuer: %w", err)
	}
	c.published = issuer.Host
	return nil
}

// Cloud returns the cloud that the cluster uses.
func (c *Cluster) Cloud() *Cloud { return c.cloud }

// ControlPlane returns the cluster's control plane.
func (c *Cluster) ControlPlane() *controlplane.ControlPlane { return c.plane }

// Config returns a copy of the administrator's client configuration.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client returns the administrator's client, which reads the core, RBAC and Lanyard kinds as Go
// types.
func (c *Cluster) Client() client.Client { return c.client }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

// Kubectl returns a kubectl command that uses the administrator's kubeconfig. The caller sets the
// command's streams and starts the command.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return c.plane.Kubectl(ctx, args...)
}

// Path returns a path in the folder of the cluster's files.
func (c *Cluster) Path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// log opens a log file. Stop closes it.
func (c *Cluster) log(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in the cluster's own folder
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs = append(c.logs, f)
	return f, nil
}

// note waits for the end of a program or the control plane. Then it closes c.ended if the result is
// an error.
func (c *Cluster) note(done <-chan struct{}, result func() error) {
	<-done
	if result() != nil {
		c.endOnce.Do(func() { close(c.ended) })
	}
}

// Ended is closed when the control plane or a program has ended although nobody stopped it;
// [Cluster.Err] says why.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Stop ends the cluster in order: first its programs, then its control plane. Its files stay until
// the next start.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	programs, logs := c.programs, c.logs
	c.programs, c.logs = nil, nil
	c.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(programs) {
		errs = append(errs, p.Stop(ctx))
	}
	errs = append(errs, c.closeEdges()...)
	if c.published != "" {
		errs = append(errs, c.cloud.withdraw(c.published))
		// While it stops, the API server waits five seconds for connections that were opened but
		// never used (net/http, Server.Shutdown). This call closes such connections.
		c.documents.CloseIdleConnections()
	}
	if c.plane != nil {
		errs = append(errs, c.plane.Stop(ctx))
	}
	for _, f := range logs {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
