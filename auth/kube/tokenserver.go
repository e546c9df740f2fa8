package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/auth"
)

// tokenServer is a client of Lanyard's token server, which issues proofs. Requests go through the
// API server.
type tokenServer struct {
	client client.Client
	caller caller
	// value names a Helm value, such as "issuer.url". If it is set, the chart installs the token
	// server.
	value string
	// invalid returns the error for a request that the token server found invalid.
	invalid func(metav1.Status, auth.Subject) *auth.Error
}

// ask posts a request of this kind to a subresource of the subject, and returns the answer. The
// error is an [*auth.Error].
func (s *tokenServer) ask(
	ctx context.Context, subresource, kind string, account auth.Account, spec map[string]any,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	subject := account.Subject
	parent, request := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	parent.SetGroupVersionKind(tokenGroup().WithKind(string(subject.Kind())))
	parent.SetNamespace(subject.Namespace())
	parent.SetName(subject.Name())
	request.Object = map[string]any{
		"metadata": map[string]any{"namespace": subject.Namespace(), "name": subject.Name(), "uid": account.UID},
		"spec":     spec,
	}
	request.SetGroupVersionKind(tokenGroup().WithKind(kind))
	if err := s.client.SubResource(subresource).Create(ctx, parent, request); err != nil {
		return nil, s.failure(ctx, err, subject)
	}
	return request, nil
}

// failure turns the error of a request into an [*auth.Error].
func (s *tokenServer) failure(ctx context.Context, err error, subject auth.Subject) *auth.Error {
	const stage = auth.StageTokenRequest
	var status apierrors.APIStatus
	foreign := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	// The API server does not know the API group, so it answers without a Status. This means that
	// the token server is not installed.
	case apierrors.IsNotFound(err) && foreign:
		return &auth.Error{
			Stage: stage, Code: auth.CodeUnavailable,
			Fix: "have the administrator set " + s.value + " of the Helm chart, which installs Lanyard's token server",
			Err: fmt.Errorf("nobody can vouch for %s: the API server does not know the group %s", subject, tokenGroup().Group),
		}
	case apierrors.IsInvalid(err) && !foreign && errors.As(err, &status):
		return s.invalid(status.Status(), subject)
	}
	failed := s.caller.failure(ctx, err, stage, subject)
	switch {
	// The token server itself answered, so the error has its message.
	case apierrors.IsServiceUnavailable(err) && !foreign && errors.As(err, &status):
		failed.Fix = "have the administrator read the log of Lanyard's token server"
		failed.Err = fmt.Errorf("the token server makes no token for %s: %s", subject, status.Status().Message)
	case failed.Code == auth.CodeUnavailable && !apierrors.IsUnauthorized(err):
		failed.Fix = "check the health of Lanyard's token server: kubectl get apiservice " + tokenGroup().Version + "." + tokenGroup().Group
	}
	return failed
}

// unknownSigner returns the error for a proof that no signer in the ring has signed.
func unknownSigner(subject auth.Subject, err error) *auth.Error {
	return &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeUnavailable,
		Fix: "wait some seconds; if that does not help, check that this program reads the KeyRing of the token server that answers",
		Err: fmt.Errorf("proof of %s: %w", subject, err),
	}
}

// anyOf returns values in the form that unstructured objects need.
func anyOf(values []string) []any {
	converted := make([]any, len(values))
	for i, value := range values {
		converted[i] = value
	}
	return converted
}
