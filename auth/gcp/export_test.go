package gcp

import "time"

// Remembered is how many claims the provider remembers.
func Remembered(p *Provider) int { return p.identities.Len() }

// RetryMetadata sets how long a failure to ask about the cluster stands.
func RetryMetadata(p *Provider, after time.Duration) { p.metadata.retry = after }
