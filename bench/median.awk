# median returns the median of a[1..n], and sorts them.
function median(a, n,   i, j, x) {
	for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j-1]; j--) { x = a[j]; a[j] = a[j-1]; a[j-1] = x }
	return n % 2 ? a[(n+1)/2] : (a[n/2] + a[n/2+1]) / 2
}
