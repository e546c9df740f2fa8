package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ecr"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// Push is an artifact to publish.
type Push struct {
	// Repository is the repository's name in the demonstration's registry, such as "tenant-a/app".
	Repository string
	// Tag is the tag.
	Tag string
	// Path is a folder or a tar.gz file.
	Path string
}

// ErrNoPublisher says that the cloud's configuration has no user [Publisher].
var ErrNoPublisher = errors.New("account " + Account + " of the cloud has no user " + Publisher)

// Push publishes an artifact at the cloud's ECR registry as the IAM user [Publisher]. It gets the
// registry's token with the AWS SDK.
func (c *Cloud) Push(ctx context.Context, p Push) (oci.Resolved, error) {
	if c.key.ID == "" {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, ErrNoPublisher)
	}
	url := repositoryURL(p.Repository)
	repository, err := oci.ParseURL(url)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, err)
	}
	user, password, err := c.registryLogin(ctx)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: log in to ECR: %w", p.Repository, p.Tag, err)
	}
	options := oci.Options{Auth: oci.Basic(user, password), Transport: c.Transport()}
	pushed, err := oci.Push(ctx, repository, p.Tag, oci.Artifact{Path: p.Path}, options)
	if err != nil {
		return oci.Resolved{}, fmt.Errorf("push %s:%s: %w", p.Repository, p.Tag, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushed[url+":"+p.Tag] = pushed.Digest
	return pushed.Resolved, nil
}

// registryLogin asks ECR for a user and a password.
func (c *Cloud) registryLogin(ctx context.Context) (user, password string, err error) {
	service := ecr.New(ecr.Options{
		Region:      Region,
		Credentials: awssdk.NewCredentialsCache(credentials.NewStaticCredentialsProvider(c.key.ID, c.key.Secret, "")),
		HTTPClient:  &http.Client{Transport: wholeBody{c.Transport()}},
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

// wholeBody buffers request bodies, so that net/http sends each in one piece. Without it, net/http
// could break the in-memory connection to the cloud:
//   - The response may begin right after the last byte of the body, before net/http has read the
//     body's io.EOF.
//   - The AWS SDK closes the body as soon as the response begins.
//   - net/http can no longer read the io.EOF from the closed body. So it breaks the connection.
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

// PushAll publishes the artifacts of all tenants. The files of a tenant are in the folder with the
// tenant's name. They become the artifact <tenant>/app in Amazon ECR, with the given tag. PushAll
// also puts the artifact into Azure's registries, and the files into the tenant's buckets at
// Google. It returns the artifacts in ECR.
func (c *Cloud) PushAll(ctx context.Context, files fs.FS, tag string) ([]Push, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("list the artifacts: %w", err)
	}
	if err := c.unpack(files); err != nil {
		return nil, err
	}
	var pushed []Push
	for _, e := range entries {
		p := Push{Repository: e.Name() + "/app", Tag: tag, Path: c.folder.join(artifactsName, e.Name())}
		if _, err := c.Push(ctx, p); err != nil {
			return nil, err
		}
		if err := c.planes.push(ctx, p); err != nil {
			return nil, err
		}
		if err := c.planes.put(e.Name(), os.DirFS(p.Path)); err != nil {
			return nil, err
		}
		pushed = append(pushed, p)
	}
	return pushed, nil
}

// unpack replaces the artifacts' folder with a copy of a file system.
func (c *Cloud) unpack(files fs.FS) error {
	root := c.folder.join(artifactsName)
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("unpack the artifacts: %w", err)
	}
	if err := os.CopyFS(root, files); err != nil {
		return fmt.Errorf("unpack the artifacts: %w", err)
	}
	return nil
}

// Fill stores files in the repositories and Google Cloud Storage buckets that manifests name. In a
// repository, the files get the manifest's tag or, if there is none, the given tag. Fill bypasses
// the cloud's permission checks for writing. To read the files, the Kubernetes objects in the
// manifests still need permission. Fill returns the repositories and buckets that it filled.
func (c *Cloud) Fill(ctx context.Context, manifests *Manifests, files fs.FS, tag string) ([]string, error) {
	if err := c.unpack(files); err != nil {
		return nil, err
	}
	var filled []string
	for _, m := range manifests.all {
		if bucket := m.text("spec", "bucketName"); slices.Contains(c.planes.buckets, bucket) {
			if err := c.planes.fill(bucket, files); err != nil {
				return nil, err
			}
			filled = append(filled, bucket)
		}
		repository, err := m.repository()
		if err != nil {
			// The object has no repository, or an address that the controller will refuse.
			continue
		}
		if plane, ok := planeOf(repository); ok {
			named := cmp.Or(m.text("spec", "ref", "tag"), tag)
			if err := c.planes.pushInto(ctx, plane, repository, named, c.folder.join(artifactsName)); err != nil {
				return nil, err
			}
			filled = append(filled, repository.Image()+":"+named)
		}
	}
	slices.Sort(filled)
	return slices.Compact(filled), nil
}

// digest returns the digest of the artifact that was pushed to a repository's URL under a tag.
func (c *Cloud) digest(url, tag string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	digest, ok := c.pushed[url+":"+tag]
	return digest, ok
}

// repositoryURL returns the URL of a repository in the demonstration's registry, in the form that
// spec.url of an OCIRepository has.
func repositoryURL(repository string) string {
	return "oci://" + Account + ".dkr.ecr." + Region + ".amazonaws.com/" + strings.TrimPrefix(repository, "/")
}

// withKey adds a new access key to the user of [Account] with the given name, in a copy of cfg. It
// returns the copy and the key. If there is no such user, the key is zero. The key is not written
// to a file, so that people cannot use it for other purposes.
func withKey(cfg cloudtest.Config, name string) (cloudtest.Config, aws.AccessKey) {
	key := aws.AccessKey{ID: "AKIA" + rand.Text()[:16], Secret: (rand.Text() + rand.Text())[:40]} // AWS's keys have the same lengths
	cfg.AWS.Accounts = slices.Clone(cfg.AWS.Accounts)
	for i, account := range cfg.AWS.Accounts {
		if account.ID != Account {
			continue
		}
		users := slices.Clone(account.Users)
		for j, user := range users {
			if user.Name == name {
				users[j].AccessKeys = append(slices.Clone(user.AccessKeys), key)
				cfg.AWS.Accounts[i].Users = users
				return cfg, key
			}
		}
	}
	return cfg, aws.AccessKey{}
}
