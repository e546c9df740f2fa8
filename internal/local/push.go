package local

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// Push is an artifact that is published.
type Push struct {
	// Repository is its name in the demonstration's registry, such as "tenant-a/app".
	Repository string
	// Tag is the tag.
	Tag string
	// Path is a folder or a tar.gz file.
	Path string
}

// ErrNoPublisher says that the cloud's description has no user to publish with.
var ErrNoPublisher = errors.New("account " + Account + " of the cloud has no user " + Publisher)

// Push publishes an artifact at the cloud's registry as the IAM user [Publisher], with the AWS SDK and a token of ECR.
func (w *World) Push(ctx context.Context, p Push) (oci.Resolved, error) {
	if w.key.ID == "" {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, ErrNoPublisher)
	}
	url := repositoryURL(p.Repository)
	repository, err := oci.ParseURL(url)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, err)
	}
	user, password, err := w.registryLogin(ctx)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: log in to ECR: %w", p.Repository, p.Tag, err)
	}
	options := oci.Options{Auth: oci.Basic(user, password), Transport: w.cloud.Transport()}
	resolved, err := oci.Push(ctx, repository, p.Tag, oci.Artifact{Path: p.Path}, options)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pushed[url+":"+p.Tag] = resolved.Digest
	return resolved, nil
}

// registryLogin asks ECR for a user and a password.
func (w *World) registryLogin(ctx context.Context) (user, password string, err error) {
	service := ecr.New(ecr.Options{
		Region:      Region,
		Credentials: awssdk.NewCredentialsCache(credentials.NewStaticCredentialsProvider(w.key.ID, w.key.Secret, "")),
		HTTPClient:  &http.Client{Transport: wholeBody{w.cloud.Transport()}},
	})
	answer, err := service.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return "", "", err
	}
	if len(answer.AuthorizationData) != 1 {
		return "", "", fmt.Errorf("ECR gave %d tokens", len(answer.AuthorizationData))
	}
	decoded, err := base64.StdEncoding.DecodeString(awssdk.ToString(answer.AuthorizationData[0].AuthorizationToken))
	if err != nil {
		return "", "", errors.New("the token of ECR is not base64")
	}
	user, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return "", "", errors.New("the token of ECR is not user:password")
	}
	return user, password, nil
}

// wholeBody hands net/http request bodies that it can send in one piece. Else it sends one, looks for its end afterwards, and
// breaks the connection when the AWS SDK has closed the body in between, which it does as soon as an answer begins: an answer
// from this process can be that fast.
type wholeBody struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t wholeBody) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return t.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	return t.next.RoundTrip(req)
}

// PushAll publishes each folder <tenant> of a file system as <tenant>/app with a tag at Amazon ECR, and returns what it published. The same
// lies then in Azure's registries and, as single files, in the tenant's buckets at Google.
func (w *World) PushAll(ctx context.Context, files fs.FS, tag string) ([]Push, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("list the artifacts: %w", err)
	}
	root := w.folder.join(artifactsName)
	if err := os.RemoveAll(root); err != nil {
		return nil, fmt.Errorf("unpack the artifacts: %w", err)
	}
	if err := os.CopyFS(root, files); err != nil {
		return nil, fmt.Errorf("unpack the artifacts: %w", err)
	}
	var pushed []Push
	for _, e := range entries {
		p := Push{Repository: e.Name() + "/app", Tag: tag, Path: w.folder.join(artifactsName, e.Name())}
		if _, err := w.Push(ctx, p); err != nil {
			return nil, err
		}
		if err := w.cloud.planes.push(ctx, p); err != nil {
			return nil, err
		}
		if err := w.cloud.planes.put(e.Name(), os.DirFS(p.Path)); err != nil {
			return nil, err
		}
		pushed = append(pushed, p)
	}
	return pushed, nil
}
