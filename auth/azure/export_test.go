package azure

// Remembered is how many identities the provider remembers.
func Remembered(p *Provider) int { return p.identities.parsed.Size() }
