package tokenserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	identityv1 "github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
)

const (
	// CertificateInterval is the time between two calls of [Certificate.Step].
	CertificateInterval = 15 * time.Second
	// PreconditionInterval is the time between two calls of [Precondition.Step].
	PreconditionInterval = time.Hour
	// retryInterval is the pause after a step that has failed.
	retryInterval = 10 * time.Second
)

// OpenAudit opens a log of audit events. It has one line of JSON for each token request, with the
// token's jti and without the token. The path "-" means the writer out; an empty path means no log.
func OpenAudit(path string, out io.Writer) (audit.Backend, error) {
	switch path {
	case "":
		return nil, nil // the empty path is valid: it means no log
	case "-":
		return auditlog.NewBackend(out, auditlog.FormatJson, auditv1.SchemeGroupVersion), nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // a flag names the file, which stays open until the program ends
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return auditlog.NewBackend(file, auditlog.FormatJson, auditv1.SchemeGroupVersion), nil
}

// Every runs a step at once and then at intervals, until ctx ends. It logs the error of a failed
// step, and soon tries the step again.
func Every(ctx context.Context, interval time.Duration, step func(context.Context) error, log *slog.Logger) {
	for {
		next := interval
		if err := step(ctx); err != nil && ctx.Err() == nil {
			log.Error("this is tried again soon", "error", err)
			next = min(interval, retryInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// ForgetDeleted drops the metrics of identities that are deleted.
func ForgetDeleted(ctx context.Context, informers cache.Informers, metrics *Metrics) error {
	informer, err := informers.GetInformer(ctx, &identityv1.WorkloadIdentity{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch WorkloadIdentities: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if gone, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
			metrics.forget(gone.Namespace, gone.Name)
		}
	}})
	return err
}
