"""What a certificate's key may do (RFC 5280, section 4.2.1.3), for the certificates made here.

The library wants all nine bits spelled out; here they are two: sign, and sign certificates.
"""

from cryptography import x509


def key_usage(*, signs: bool, signs_certificates: bool) -> x509.KeyUsage:
    """The extension with these bits, the other seven off."""
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
