package awskms

import (
	"context"
	"errors"

	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
)

// Error says why a call of KMS failed. It contains no text that KMS or a proxy wrote.
type Error struct {
	// Operation is the call, such as "Sign".
	Operation string
	// Key is the key's ARN; empty for CreateKey.
	Key string
	// Code is the error code of KMS, such as "AccessDeniedException". It is empty if KMS did not
	// answer.
	Code string
	// Detail says what happened, and Fix what to do.
	Detail, Fix string
	// Err is the cause. It is [sign.ErrGone] if the key is missing, disabled or pending deletion.
	Err error
}

// Error returns a text with the call, the key, the reason and the next step.
func (e *Error) Error() string {
	text := "AWS KMS " + e.Operation
	if e.Key != "" {
		text += " " + e.Key
	}
	text += ": " + e.Detail
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text + ": " + e.Fix
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// failure converts the error of a call to an [*Error]; nil stays nil.
func failure(ctx context.Context, operation, key string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{
		Operation: operation, Key: key, Detail: "KMS did not answer",
		Fix: "check that the KMS endpoint of the region can be reached", Err: err,
	}
	if identity, ok := errors.AsType[*auth.Error](err); ok {
		// The whole text of the error can serve as e.Fix, because it ends with what to do.
		e.Detail, e.Fix = "the token server has no AWS identity", identity.Error()
		return e
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		if ctx.Err() != nil {
			e.Detail = "KMS did not answer in time"
		}
		return e
	}
	e.Code = api.ErrorCode()
	switch e.Code {
	case "AccessDeniedException":
		e.Detail, e.Fix = "the role may not do that", "allow kms:"+operation+" to the token server's role, and in the key's policy"
	case (&kmstypes.NotFoundException{}).ErrorCode():
		e.Detail, e.Fix, e.Err = "there is no such key", "run \"lanyard keys revoke\" for the key", sign.ErrGone
	case (&kmstypes.DisabledException{}).ErrorCode():
		e.Detail, e.Fix, e.Err = "the key is disabled", "enable the key, or run \"lanyard keys revoke\" for it", sign.ErrGone
	case (&kmstypes.KMSInvalidStateException{}).ErrorCode():
		e.Detail, e.Fix, e.Err = "the key is pending deletion", "cancel the deletion and enable the key, or run \"lanyard keys revoke\" for it",
			sign.ErrGone
	case "ThrottlingException", (&kmstypes.LimitExceededException{}).ErrorCode():
		e.Detail, e.Fix = "a quota is exhausted", "raise the account's quota of KMS in Service Quotas"
	default:
		e.Detail, e.Fix = "KMS refused or failed", "see the code in the KMS API Reference"
	}
	return e
}
