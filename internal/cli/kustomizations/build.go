package kustomizations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/cli/artifacts"
	"github.com/lanyard-dev/lanyard/internal/desired"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

// Limits of a build. They are the defaults of lanyard-apply-controller's flags.
const (
	maxArchive = 32 << 20 // bytes
	maxObjects = 3000
	maxMemory  = 256 << 20 // bytes
	maxTime    = 30 * time.Second
)

// build builds the manifests as the controller does: in a confined child of this program.
func (d *diff) build(ctx context.Context, o *v1alpha1.Kustomization, variables desired.Variables) ([]*unstructured.Unstructured, error) {
	limits := kustomize.NewLimits(maxArchive, maxObjects)
	content, err := d.pack(ctx, archive.Limits{MaxBytes: limits.FileBytes, MaxFiles: limits.Files})
	if err != nil {
		return nil, err
	}
	if d.program == "" {
		return nil, errors.New("the path of this program's file is not known, and a child of this program builds the manifests; " +
			"call the program by its path")
	}
	if err := sandbox.Protect(); err != nil {
		return nil, fmt.Errorf("protect the memory of this process from its child: %w", err)
	}
	request, answer := limits.Messages(maxArchive)
	pool := sandbox.New(d.program, sandbox.Limits{
		Children: 1, Memory: maxMemory, Time: maxTime, Request: request, Answer: answer, Requests: 1,
	})
	defer pool.Close()
	spec := desired.Build(o.Spec, true)
	if spec.Substitute != nil {
		spec.Substitute.Values = variables.Values
	}
	asked := kustomize.Request{Tenant: o.Namespace, Archive: content, Spec: spec, Secret: variables.Secret}
	if o.Spec.Decryption != nil {
		asked.DataKeys = refuseEncrypted
	}
	built, err := kustomize.NewBuilder(pool, limits).Build(ctx, asked)
	failed, ended := errors.AsType[*sandbox.Error](err)
	if ended && failed.Reason == sandbox.ReasonUnavailable {
		return nil, fmt.Errorf("the manifests cannot be built on this machine: %w; "+
			"run the command on Linux on amd64 or arm64, where the process may install a seccomp filter", failed.Err)
	}
	return built.Objects, err
}

// refuseEncrypted refuses encrypted files: this command has none of the identities that decrypt.
func refuseEncrypted(_ context.Context, files []masterkey.File) (map[string][]byte, error) {
	return nil, fmt.Errorf("%s is encrypted, and this command decrypts nothing; compare a folder without encrypted files", files[0].Name)
}

// pack returns the content of --path as an archive.
func (d *diff) pack(ctx context.Context, limits archive.Limits) ([]byte, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return nil, fmt.Errorf("--path: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("--path: %s is no folder; name the folder with the content of the artifact", d.path)
	}
	var content bytes.Buffer
	err = artifacts.Pack(ctx, d.path, limits, &content)
	return content.Bytes(), err
}
