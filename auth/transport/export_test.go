package transport

// Len is how many proxies have a transport.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.Len()
}
