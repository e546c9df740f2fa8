package auth

import (
	"context"
	"time"
)

// AccountReader knows what subjects map to, from memory. Implementations are safe for concurrent use.
type AccountReader interface {
	// Lookup answers without I/O. It fails with an [*Error] of [CodeSubjectNotFound] when it does not know the subject,
	// which may be because it has not heard of it yet.
	Lookup(ctx context.Context, subject Subject) (Account, error)
	// Subscribe registers a function that is called, promptly and in order, whenever a subject's UID or attributes change or
	// the subject is deleted.
	Subscribe(changed func(Subject))
}

// Prover vouches for subjects. Implementations are safe for concurrent use.
type Prover interface {
	// Read gets the account from its source of truth, now. It fails with [CodeSubjectNotFound] when there is none.
	Read(ctx context.Context, subject Subject) (Account, error)
	// Prove makes evidence, for the receiver that request names, that its bearer speaks for account and no other. It
	// fails with [CodeSubjectReplaced] when the subject's UID is no longer account.UID.
	Prove(ctx context.Context, account Account, request ProofRequest) (Proof, error)
}

// Accounts both reads and proves.
type Accounts interface {
	AccountReader
	Prover
}

// ProofRequest says what a proof must contain, which is as little as possible.
type ProofRequest struct {
	// Audience names the one receiver. Required.
	Audience string
	// Lifetime is how long the proof is to be valid; the default is [ProofLifetime].
	Lifetime time.Duration
}

// ProofLifetime is the lifetime of a proof that is exchanged immediately: the shortest that Kubernetes issues
// (TokenRequestSpec.expirationSeconds).
const ProofLifetime = 600 * time.Second

// Proof is signed evidence of a subject for one audience.
type Proof struct {
	// Token is the evidence, a JWT (RFC 7519).
	Token Secret
	// ExpiresAt is the exp claim, UTC.
	ExpiresAt time.Time
}
